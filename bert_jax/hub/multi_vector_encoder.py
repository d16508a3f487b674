"""The files of a multi-vector encoder (late interaction, ColBERT), in the layouts of sentence-transformers, PyLate and
Stanford.

Its vectors are those of a text's tokens. We write the layout of sentence-transformers, which lists what the other two
imply: which tokens are compared, and that vectors have length 1.
"""

import string
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from tokenizers import AddedToken

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.files import read_json, write_json
from bert_jax.core.hashes import is_inside_directory
from bert_jax.hub.sentence_transformers import (
    MODULES,
    PROJECTION,
    DenseConfig,
    ModuleEntry,
    Projection,
    TextSettings,
    dense_config,
    files_of_texts,
    projection_of,
    read_beside,
    read_text_settings,
    type_of_module,
    unusual,
)
from bert_jax.text.tokenizer import Tokenizer

MODEL_TYPES = ("MultiVectorEncoder", "ColBERT")  # of sentence-transformers, of PyLate
STANFORD = "HF_ColBERT"  # the architecture that Stanford's config.json names
STANFORD_FILE = "artifact.metadata"
MASK, POOLING = "MultiVectorMask", "HierarchicalTokenPooling"
MODULE_ORDER = ("Transformer", "Dense", MASK, "Normalize", POOLING)  # in the order in which they run
STRATEGIES = ("fixed", "min")
SIMILARITIES = ("maxsim", "meanmaxsim")
TASKS = QUERY, DOCUMENT = "query", "document"
TOKENS = "token_embeddings"  # the vectors that the modules read and write
LIBRARY = "sentence_transformers."
CLASSES = {
    "Transformer": "base.modules.transformer",
    "Dense": "base.modules.dense",
    MASK: "multi_vector_encoder.modules.multi_vector_mask",
    "Normalize": "base.modules.normalize",
    POOLING: "multi_vector_encoder.modules.token_pooling",
}


class MaskConfig(TypedDict, total=False):
    skiplist_words: list[str] | None
    skiplist_tasks: str | list[str] | None
    keep_only_token_ids: list[int] | None


class MultiVectorPoolingConfig(TypedDict, total=False):
    pool_factor: float
    num_protected_tokens: int
    normalize_embeddings: bool
    tasks: str | list[str] | None


class StanfordConfig(TypedDict, total=False):
    query_token_id: str | None
    doc_token_id: str | None
    query_maxlen: int | None
    doc_maxlen: int | None
    attend_to_mask_tokens: bool | None
    mask_punctuation: bool | None


@dataclass(frozen=True)
class QueryExpansion:
    """Tokens that lengthen a query to `length`; a longer one is cut to it ("fixed"), or stays as it is ("min")."""

    length: int = 32
    strategy: str = "fixed"
    attend: bool = False  # whether other tokens attend to them
    token: str | None = None  # None: the mask token


@dataclass(frozen=True)
class TokenPooling:
    """Vectors of a text that are averaged: so many times fewer are left."""

    factor: float = 2.0
    protected: int = 1  # the first tokens, which stay as they are
    normalize: bool = True
    tasks: tuple[str, ...] = (DOCUMENT,)


@dataclass(frozen=True)
class MultiVectorSettings(TextSettings):
    """How an encoder's states become the vectors of a text, and which of them are compared."""

    projection: Projection | None = None
    normalize: bool = True
    query_length: int | None = None  # the most tokens of a query; None: as for any text
    document_length: int | None = None
    expansion: QueryExpansion | None = None
    skiplist: tuple[str, ...] = ()  # words whose vectors are left out
    skiplist_tasks: tuple[str, ...] = (DOCUMENT,)
    first_token: bool = True  # whether the first token of a text, such as [CLS], is compared
    kept_ids: tuple[int, ...] = ()  # tokens whose vectors alone are kept, but for queries; (): those of all
    pooling: TokenPooling | None = None
    similarity: str = "maxsim"
    markers: tuple[str, ...] = ()  # beginnings of prompts that are one token each, if the vocabulary has them

    @classmethod
    def from_dict(cls, values: dict) -> "MultiVectorSettings":
        """The inverse of `dataclasses.asdict`, also after JSON, which has no tuples."""
        inner = {"projection": Projection, "expansion": QueryExpansion, "pooling": TokenPooling}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        for name, settings_type in inner.items():
            if given := values.get(name):
                fields = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
                values[name] = settings_type(**fields)
        return cls(**values)

    def longest(self, task: str, most: int) -> int:
        """Return how many tokens of a text are read, by a model that reads `most`."""
        own = self.query_length if task == QUERY else self.document_length
        if task == QUERY and (expansion := self.expansion):
            fixed = expansion.strategy == "fixed"
            own = expansion.length if fixed else max(expansion.length, own or self.max_length or most)
        return min(own or self.max_length or most, most)


def is_stanford(published: dict) -> bool:
    """Whether a config.json is of Stanford's layout."""
    return published.get("architectures") == [STANFORD]


def rename_stanford_tensor(name: str) -> tuple[str]:
    """The linear layer stands beside the encoder."""
    return (f"{PROJECTION}.{name}" if name.startswith("linear.") else name,)


def read_multi_vector(directory: Path, published: dict) -> MultiVectorSettings | None:
    """Read how a directory's model turns texts into vectors; None if it is no multi-vector encoder. `published` is the
    content of its config.json."""
    if is_stanford(published):
        return read_stanford(directory)
    modules = read_modules(directory)
    config = read_beside(directory, "config_sentence_transformers.json")
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES and MASK not in modules:
        return None
    if (
        list(modules) != [module_type for module_type in MODULE_ORDER if module_type in modules]
        or "Transformer" not in modules
    ):
        raise BertJaxError(
            f"{directory} is a multi-vector encoder with the modules {', '.join(modules)}; supported are "
            f"{', '.join(MODULE_ORDER)}, each once at most and in this order"
        )
    texts = read_text_settings(directory, directory)
    beside = read_beside(directory, "sentence_bert_config.json")
    expansion = read_expansion(beside, directory)
    lengths: dict[str, Any] = {
        f"{task}_length": beside.get(f"{task}_length") or config.get(f"{task}_length") for task in TASKS
    }
    mask = read_module(modules, MASK, MaskConfig)
    normalize, markers = "Normalize" in modules, ()
    if model_type == "ColBERT":
        if "query_expansion" not in beside:
            expansion = read_pylate_expansion(config, directory)
        lengths["query_length"] = None if expansion else lengths["query_length"]
        words = config.get("skiplist_words")
        mask = mask or {"skiplist_words": [*string.punctuation] if words is None else words}
        normalize = True
        markers = tuple(prefix for task in TASKS if (prefix := config.get(f"{task}_prefix")))
        texts["prompts"] = {
            **texts["prompts"],
            **{
                task: add_prefix(config.get(f"{task}_prefix"), texts["prompts"].get(task, ""))
                for task in TASKS
            },
        }
    similarity = config.get("similarity_fn_name")
    pooling = read_module(modules, POOLING, MultiVectorPoolingConfig)
    return MultiVectorSettings(
        **texts,
        **lengths,
        projection=read_projection(modules),
        normalize=normalize,
        expansion=expansion,
        skiplist=tuple(mask.get("skiplist_words") or ()),
        skiplist_tasks=read_tasks(mask.get("skiplist_tasks")),
        kept_ids=tuple(mask.get("keep_only_token_ids") or ()),
        pooling=TokenPooling(
            pooling.get("pool_factor", TokenPooling.factor),
            pooling.get("num_protected_tokens", TokenPooling.protected),
            pooling.get("normalize_embeddings", False),  # as old files mean it
            read_tasks(pooling.get("tasks")),
        )
        if POOLING in modules
        else None,
        similarity=similarity if similarity in SIMILARITIES else MultiVectorSettings.similarity,
        markers=markers,
    )


def add_prefix(prefix: str | None, prompt: str) -> str:
    return (prefix or "") + prompt.removeprefix(prefix or "")


def read_stanford(directory: Path) -> MultiVectorSettings:
    file = directory / STANFORD_FILE
    given = read_json(file, StanfordConfig) if file.is_file() else {}
    prompts = {
        QUERY: f"{given.get('query_token_id') or '[unused0]'} ",
        DOCUMENT: f"{given.get('doc_token_id') or '[unused1]'} ",
    }
    punctuation = given.get("mask_punctuation")
    return MultiVectorSettings(
        **read_text_settings(directory, directory) | {"prompts": prompts},
        projection=Projection(0, bias=False),  # its width is that of its tensor
        document_length=given.get("doc_maxlen"),
        expansion=QueryExpansion(
            given.get("query_maxlen") or QueryExpansion.length,
            attend=bool(given.get("attend_to_mask_tokens")),
        ),
        skiplist=() if punctuation is False else tuple(string.punctuation),
        markers=tuple(prompts.values()),
    )


def complete_from_tensors(
    settings: MultiVectorSettings, shapes: dict[str, tuple[int, ...]]
) -> MultiVectorSettings:
    """Return the settings with the width of Stanford's linear layer."""
    if settings.projection is None or settings.projection.width:
        return settings
    width = shapes.get(f"{PROJECTION}.linear.weight", (0,))[0]
    return replace(settings, projection=replace(settings.projection, width=width))


def read_modules(directory: Path) -> dict[str, Path]:
    """Return the folders of the modules in modules.json by their kinds, in their order; {} without that file."""
    path = directory / MODULES
    if not path.is_file():
        return {}
    folders = {type_of_module(module): module["path"] for module in read_json(path, list[ModuleEntry])}
    for name in folders.values():
        if not is_inside_directory(f"./{name}"):
            raise BertJaxError(
                f"{path} names {name!r:.60}, a folder outside of {directory}; copy it again from its source"
            )
    return {module_type: directory / name for module_type, name in folders.items()}


def read_module(modules: dict[str, Path], module_type: str, schema: type) -> Any:
    """Return the content of a module's config.json; {} if there is none."""
    file = modules[module_type] / "config.json" if module_type in modules else None
    return read_json(file, schema) if file and file.is_file() else {}


def read_projection(modules: dict[str, Path]) -> Projection | None:
    if "Dense" not in modules:
        return None
    folder = modules["Dense"]
    if not (folder / "config.json").is_file():
        raise BertJaxError(f"{folder / 'config.json'} is missing; copy it again from its source")
    dense = read_json(folder / "config.json", DenseConfig)
    names = {dense.get(name) for name in ("module_input_name", "module_output_name")} - {None, TOKENS}
    at_tokens: dict = {**dense, "module_input_name": None, "module_output_name": None}
    odd = unusual(at_tokens) + [f"Dense of {name}" for name in sorted(map(str, names))]
    if odd:
        raise BertJaxError(f"{folder} has a {odd[0]}, which is not supported for multi-vector encoders")
    return projection_of(dense, folder)


def read_tasks(listed: str | list[str] | None) -> tuple[str, ...]:
    return (DOCUMENT,) if listed is None else (listed,) if isinstance(listed, str) else tuple(listed)


def read_expansion(config: dict, directory: Path) -> QueryExpansion | None:
    given = config.get("query_expansion")
    if not given:
        return None
    where = f"query_expansion of {directory / 'sentence_bert_config.json'}"
    check_name(given.get("strategy"), STRATEGIES, f"strategy in {where}")
    return QueryExpansion(
        check_length(given.get("length"), where),
        given["strategy"],
        bool(given.get("attend")),
        given.get("token"),
    )


def read_pylate_expansion(config: dict, directory: Path) -> QueryExpansion | None:
    if config.get("do_query_expansion") is False:
        return None
    attend = config.get("attend_to_expansion_tokens", config.get("attend_to_mask_tokens"))
    where = f"query_length of {directory / 'config_sentence_transformers.json'}"
    return QueryExpansion(
        check_length(config.get("query_length") or QueryExpansion.length, where), attend=bool(attend)
    )


def check_length(length: object, where: str) -> int:
    if not isinstance(length, int) or not 1 <= length < 1 << 20:
        raise BertJaxError(
            f"{where} has the length {length!r:.40}, which is no number of tokens; copy it again"
        )
    return length


def keep_markers_whole(tokenizer: Tokenizer, settings: MultiVectorSettings) -> None:
    """Let the tokenizer give one token for each marker that its vocabulary has, wherever it stands in a text."""
    vocabulary = tokenizer.rust.get_vocab(with_added_tokens=True)
    for marker in settings.markers:
        known = [token for token in (marker, *marker.split(maxsplit=1)[:1]) if token in vocabulary]
        if known and tokenizer.rust.encode(known[0], add_special_tokens=False).tokens != known[:1]:
            tokenizer.rust.add_special_tokens([AddedToken(known[0], normalized=False)])


def write_multi_vector(directory: Path, settings: MultiVectorSettings, width: int) -> None:
    """Write the files of a multi-vector encoder beside a saved model with states of this width, but not the tensors of
    its linear layer."""
    present = {
        "Dense": settings.projection is not None,
        "Normalize": settings.normalize,
        POOLING: settings.pooling is not None,
    }
    module_types = [module_type for module_type in MODULE_ORDER if present.get(module_type, True)]
    folders = {module_type: f"{n}_{module_type}" if n else "" for n, module_type in enumerate(module_types)}
    files: dict[str, Any] = {
        MODULES: [
            {
                "idx": n,
                "name": str(n),
                "path": folders[module_type],
                "type": f"{LIBRARY}{CLASSES[module_type]}.{module_type}",
            }
            for n, module_type in enumerate(module_types)
        ],
        **files_of_texts(settings),
        f"{folders[MASK]}/config.json": {
            "skiplist_words": [*settings.skiplist],
            "skiplist_tasks": [*settings.skiplist_tasks],
            "keep_only_token_ids": [*settings.kept_ids] or None,
        },
    }
    files["sentence_bert_config.json"] |= {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": TOKENS,
    }
    lengths = {"query_length": settings.query_length, "document_length": settings.document_length}
    files["sentence_bert_config.json"] |= {name: length for name, length in lengths.items() if length}
    if expansion := settings.expansion:
        files["sentence_bert_config.json"]["query_expansion"] = {
            "strategy": expansion.strategy,
            "attend": expansion.attend,
            "token": expansion.token,
            "length": expansion.length,
        }
    files["config_sentence_transformers.json"] |= {
        "model_type": MODEL_TYPES[0],
        "similarity_fn_name": settings.similarity,
    }
    names = {"module_input_name": TOKENS, "module_output_name": TOKENS}
    if projection := settings.projection:
        files[f"{folders['Dense']}/config.json"] = dense_config(width, projection) | names
    if settings.normalize:
        files[f"{folders['Normalize']}/config.json"] = names
    if pooling := settings.pooling:
        files[f"{folders[POOLING]}/config.json"] = {
            "pool_factor": pooling.factor,
            "num_protected_tokens": pooling.protected,
            "normalize_embeddings": pooling.normalize,
            "tasks": [*pooling.tasks],
        }
    for name, content in files.items():
        write_json(directory / name, content)
