"""The files of `sentence-transformers` for an embedder or a cross-encoder, in its old layout and in its new one.

Both layouts list modules in modules.json; the new one has other paths of modules and other keys of the pooling. We
write the old layout, because every version opens it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json
from bert_jax.core.hashes import is_inside_directory

# Our name -> sentence-transformers' name in the new layout. The old layout has the key pooling_mode_{name}: true, with
# the name in OLD_KEYS if there is one.
MODES = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "weighted_mean": "weightedmean",
    "last": "lasttoken",
}
OLD_KEYS = {
    "cls": "cls_token",
    "mean": "mean_tokens",
    "max": "max_tokens",
    "weighted_mean": "weightedmean_tokens",
}


# The supported modules, in the order in which they run.
STATIC = "StaticEmbedding"  # in place of Transformer and Pooling
MODULE_TYPES = (STATIC, "Transformer", "Pooling", "Dense", "Normalize")
MODULES = "modules.json"
CLASSIFIES = "sequence-classification"
PROJECTION = "projection"  # prefix of the tensor names of a Dense
ACTIVATION = "torch.nn.modules."  # prefix of the names of activations
TORCH_ACTIVATIONS = {"linear.Identity": "none", "activation.Tanh": "tanh"}


# The keys that mark a cross-encoder in config.json: since version 4, and before it.
CROSS_ENCODER_KEYS = ("sentence_transformers", "sbert_ce_default_activation_function")
# Tells version 5.3 and later that the score of a cross-encoder is the sigmoid of its logit.
CROSS_ENCODER = {
    CROSS_ENCODER_KEYS[0]: {"activation_fn": f"{ACTIVATION}activation.Sigmoid", "version": "5.3.0"}
}


class ModuleEntry(TypedDict):
    type: str
    path: str


class TransformerConfig(TypedDict, total=False):
    max_seq_length: int | float | None
    do_lower_case: bool | None
    transformer_task: str  # CLASSIFIES for a cross-encoder
    query_length: int | None
    document_length: int | None
    query_expansion: dict[str, Any] | None


class SentenceTransformerConfig(TypedDict, total=False):
    model_type: str | None
    prompts: dict[str, str | None] | None
    default_prompt_name: str | None
    similarity_fn_name: str | None
    max_active_dims: int | None
    query_prefix: str | None
    document_prefix: str | None
    query_length: int | None
    document_length: int | None
    do_query_expansion: bool | None
    skiplist_words: list[str] | None


class TokenizerLimits(TypedDict, total=False):
    model_max_length: int | float | None


class PoolingModuleConfig(TypedDict, total=False):
    pooling_mode: str | list[str] | None
    include_prompt: bool


class DenseConfig(TypedDict, total=False):
    out_features: int
    bias: bool
    activation_function: str
    use_residual: bool
    module_input_name: str
    module_output_name: str | None


# The files beside modules.json and their content.
BESIDE: dict[str, Any] = {
    "sentence_bert_config.json": TransformerConfig,
    "config_sentence_transformers.json": SentenceTransformerConfig,
    "tokenizer_config.json": TokenizerLimits,
}


@dataclass(frozen=True)
class Projection:
    """A linear layer with an activation, between the pooling and the embedding."""

    width: int
    bias: bool = True
    activation: str = "none"


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How a model that turns texts into vectors reads them."""

    max_length: int | None = None  # None: the encoder's limit
    lower_case: bool = False  # whether to lower-case texts before the tokenizer
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    pools_prompt: bool = True


@dataclass(frozen=True)
class EmbedderSettings(TextSettings):
    """How hidden states become an embedding."""

    pooling: str = "mean"
    normalize: bool = True
    projection: Projection | None = None
    is_static: bool = False  # the mean of static embeddings
    similarity: str = "cosine"  # how sentence-transformers compares two embeddings; bert_jax uses the cosine
    unknown: str = ""  # what is not supported here: modules, their order, a pooling mode or parts of a Dense

    @classmethod
    def from_dict(cls, values: dict) -> "EmbedderSettings":
        """The inverse of `dataclasses.asdict`."""
        projection = values.get("projection")
        return cls(**values | {"projection": projection and Projection(**projection)})


def read_embedder(directory) -> EmbedderSettings | None:
    """Read how a directory's model embeds texts; return None if there is no modules.json or it is a cross-encoder."""
    directory = Path(directory)
    path = directory / MODULES
    if not path.is_file():
        return None
    modules = read_json(path, list[ModuleEntry])
    if is_cross_encoder(directory):
        return None
    module_types = module_folders(modules)
    unknown = [module_type for module_type in module_types if module_type not in MODULE_TYPES]
    if not unknown and (
        len(modules) > len(module_types) or list(module_types) != sorted(module_types, key=MODULE_TYPES.index)
    ):
        unknown = [f"modules in the order {', '.join(type_of_module(module) for module in modules)}"]
    before = module_types.get("Pooling", module_types.get(STATIC))
    if before is None or not is_inside_directory(f"./{before}"):
        raise BertJaxError(
            f"{path} lists no Pooling module with a folder beside it; copy it again from its source"
        )
    file = directory / before / "config.json"
    pooling = read_json(file, PoolingModuleConfig) if "Pooling" in module_types and file.is_file() else {}
    mode = pooling_mode(pooling)
    model_config = read_beside(directory, "config_sentence_transformers.json")
    folder = projection_folder(directory)
    dense = read_json(folder / "config.json", DenseConfig) if folder else {}
    unknown += [f"pooling {mode}"] * (mode not in MODES) + unusual(dense)
    return EmbedderSettings(
        pooling=mode,
        normalize="Normalize" in module_types,
        **read_text_settings(directory, directory),
        pools_prompt=pooling.get("include_prompt", True),
        projection=projection_of(dense, folder) if folder and not unknown else None,
        is_static=STATIC in module_types,
        similarity=model_config.get("similarity_fn_name") or EmbedderSettings.similarity,
        unknown=", ".join(unknown),
    )


def read_beside(directory: Path, name: str) -> dict:
    """Return the content of one of the files beside modules.json; {} if it is not there."""
    path = directory / name
    return read_json(path, BESIDE[name]) if path.is_file() else {}


def read_text_settings(directory: Path, encoder: Path) -> dict[str, Any]:
    """Return the fields of `TextSettings` but for `pools_prompt`; `encoder` is the folder of the Transformer."""
    texts = read_beside(encoder, "sentence_bert_config.json")
    model_config = read_beside(directory, "config_sentence_transformers.json")
    length = texts.get("max_seq_length") or read_beside(encoder, "tokenizer_config.json").get(
        "model_max_length"
    )
    return {
        # A tokenizer without a limit says 10^30.
        "max_length": length if isinstance(length, int) and length < 10**6 else None,
        "lower_case": bool(texts.get("do_lower_case")),
        "prompts": {name: prompt or "" for name, prompt in (model_config.get("prompts") or {}).items()},
        "default_prompt": model_config.get("default_prompt_name"),
    }


def is_cross_encoder(directory) -> bool:
    """Whether sentence_bert_config.json says that the model is a cross-encoder, as version 5.4 and later write it."""
    return read_beside(Path(directory), "sentence_bert_config.json").get("transformer_task") == CLASSIFIES


def static_folder(directory) -> str | None:
    """Return the name of the folder of StaticEmbedding, if modules.json lists that module."""
    path = Path(directory) / MODULES
    folder = module_folders(read_json(path, list[ModuleEntry])).get(STATIC) if path.is_file() else None
    if folder is not None and not is_inside_directory(f"./{folder}"):
        raise BertJaxError(
            f"{path} names {folder!r:.60} for its {STATIC}, which is not a folder beside it; copy it again from its "
            "source"
        )
    return folder


def module_folders(modules: list[ModuleEntry]) -> dict[str, str]:
    """Map the kind of each module to its folder."""
    return {type_of_module(module): module["path"] for module in modules}


def type_of_module(module: ModuleEntry) -> str:
    return module["type"].rsplit(".", 1)[-1]


def projection_folder(directory) -> Path | None:
    """Return the folder of the Dense between pooling and embedding, if there is one."""
    path = Path(directory) / MODULES
    folder = module_folders(read_json(path, list[ModuleEntry])).get("Dense") if path.is_file() else None
    if folder is not None and not (
        is_inside_directory(folder) and (path.parent / folder / "config.json").is_file()
    ):
        raise BertJaxError(
            f"{path} names {folder!r:.60} for its Dense, which is not a folder with a config.json beside it; copy it "
            "again from its source"
        )
    return Path(directory) / folder if folder is not None else None


def projection_of(config: dict, folder: Path) -> Projection:
    width = config.get("out_features", 0)
    if width < 1:
        raise BertJaxError(
            f"{folder / 'config.json'} gives out_features = {width}; copy it again from its source"
        )
    activation = config.get("activation_function", ACTIVATION + "activation.Tanh").removeprefix(ACTIVATION)
    return Projection(width, config.get("bias", True), TORCH_ACTIVATIONS.get(activation, activation))


def dense_config(width: int, projection: Projection) -> dict[str, Any]:
    """Return the config.json of a Dense that reads states of this width."""
    theirs = {ours: name for name, ours in TORCH_ACTIVATIONS.items()}
    return {
        "in_features": width,
        "out_features": projection.width,
        "bias": projection.bias,
        "activation_function": ACTIVATION + theirs[projection.activation],
    }


def unusual(config: dict) -> list[str]:
    """List the properties of a Dense that are not supported."""
    usual = ("sentence_embedding", None)
    named = [config.get(name) for name in ("module_input_name", "module_output_name")]
    odd = ["Dense of other inputs or outputs"] * any(name not in usual for name in named)
    odd += ["Dense with a residual"] * bool(config.get("use_residual"))
    name = config.get("activation_function", "").removeprefix(ACTIVATION)
    return odd + [f"Dense with {name}"] * (bool(name) and name not in TORCH_ACTIVATIONS)


def pooling_mode(config: dict) -> str:
    """Return our name for the mode in a pooling's config, or its own name if we have none."""
    new = config.get("pooling_mode")
    named = [new] if isinstance(new, str) else new or []
    named += [
        key.removeprefix("pooling_mode_")
        for key, on in config.items()
        if key.startswith("pooling_mode_") and on is True
    ]
    own_names = {theirs: mode for mode, theirs in MODES.items()} | {
        old: mode for mode, old in OLD_KEYS.items()
    }
    modes = {own_names.get(name, name) for name in named} or {"mean"}
    return "+".join(sorted(modes))


def files_of_texts(settings: TextSettings) -> dict[str, Any]:
    """Return the files beside modules.json that say how texts are read."""
    return {
        "sentence_bert_config.json": {
            "max_seq_length": settings.max_length,
            "do_lower_case": settings.lower_case,
        },
        "config_sentence_transformers.json": {
            "prompts": settings.prompts,
            "default_prompt_name": settings.default_prompt,
        },
    }


def write_embedder(directory, embedder: EmbedderSettings, width: int) -> None:
    """Write the embedder's files beside a saved model with states of this width, but not the tensors of a Dense."""
    if embedder.unknown:
        raise BertJaxError(f"an embedder with {embedder.unknown} cannot be saved; copy its directory instead")
    if embedder.is_static and embedder.pooling != "mean":
        raise BertJaxError(f"{STATIC} takes the mean, not pooling={embedder.pooling}, so this is not saved")
    directory = Path(directory)
    present = {
        STATIC: embedder.is_static,
        "Dense": embedder.projection is not None,
        "Normalize": embedder.normalize,
    }
    names = [module_type for module_type in MODULE_TYPES if present.get(module_type, not embedder.is_static)]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{name}" if i else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for i, name in enumerate(names)
    ]
    mode = MODES[embedder.pooling]
    old = {f"pooling_mode_{OLD_KEYS.get(ours, theirs)}": theirs == mode for ours, theirs in MODES.items()}
    files: dict[str, Any] = {MODULES: modules, **files_of_texts(embedder)}
    files["config_sentence_transformers.json"] |= {"similarity_fn_name": embedder.similarity}
    if embedder.is_static:
        del files["sentence_bert_config.json"]
    else:
        files["1_Pooling/config.json"] = {
            "word_embedding_dimension": width,
            **old,
            "include_prompt": embedder.pools_prompt,
        }
    if projection := embedder.projection:
        files[f"{names.index('Dense')}_Dense/config.json"] = dense_config(width, projection)
    if embedder.normalize:
        (directory / f"{len(names) - 1}_Normalize").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_json(directory / name, content)
