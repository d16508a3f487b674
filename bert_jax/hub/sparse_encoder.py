"""The files of `sentence-transformers` for a sparse encoder: a masked language model whose logits are pooled (SPLADE),
and weights of tokens that stand for it where queries are embedded without a network.

Models of one kind for both list two modules in modules.json. With weights for queries, modules.json lists a Router, and
its own file the modules of both. We write the oldest layout, because every version opens it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

import numpy as np

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.files import read_json, write_json
from bert_jax.core.hashes import is_inside_directory
from bert_jax.hub.sentence_transformers import (
    ModuleEntry,
    TextSettings,
    files_of_texts,
    read_beside,
    read_text_settings,
    type_of_module,
)
from bert_jax.hub.tensors import Tensors
from bert_jax.text.tokenizer import Tokenizer

QUERY_WEIGHTS = "query_weights"  # the module of the tokens' weights in queries, and the prefix of its tensor
POOLINGS = ("max", "sum")
ACTIVATIONS = ("relu", "log1p_relu")
SPARSE_TYPES = {"SpladePooling", "SparseStaticEmbedding", "SparseAutoEncoder"}
DOCUMENTS, QUERIES = ["Transformer", "SpladePooling"], ["SparseStaticEmbedding"]
ROUTER_FILES = ("router_config.json", "config.json")  # the second in old directories
POOLING_FOLDER, QUERY_FOLDER = "1_SpladePooling", "query_0_SparseStaticEmbedding"
LIBRARY = "sentence_transformers.sparse_encoder.models."


class RouterConfig(TypedDict):
    types: dict[str, str]  # of modules, by their folders
    structure: dict[str, list[str]]  # the folders of the modules of a route, in their order


class SpladeConfig(TypedDict, total=False):
    pooling_strategy: str
    activation_function: str


class StaticConfig(TypedDict, total=False):
    path: str | None  # of a JSON file with the weights by token
    frozen: bool


@dataclass(frozen=True)
class SparseSettings(TextSettings):
    """How a masked language model turns a text into weights of the entries of its vocabulary."""

    pooling: str = "max"
    activation: str = "relu"  # or a second logarithm, "log1p_relu"
    max_active_dims: int | None = None  # None: all that are not 0
    query_weights: bool = False  # whether the weights of a query are those of its tokens, without the network
    frozen: bool = False  # whether training leaves these as they are
    token_weights: bool = (
        False  # whether a linear layer weighs the text's own tokens (BGE-M3), not the masked LM
    )


def read_sparse(directory: Path) -> SparseSettings | None:
    """Read how a directory's model embeds texts; return None if it is no sparse encoder."""
    routes = read_routes(directory)
    if SPARSE_TYPES.isdisjoint(module_type for modules in routes.values() for module_type, _ in modules):
        return None
    queries, documents = routes.get("query", []), routes.get("document", [])
    module_types = [module_type for module_type, _ in documents]
    if module_types != DOCUMENTS or (
        queries != documents and [module_type for module_type, _ in queries] != QUERIES
    ):
        named = ", ".join(
            dict.fromkeys(module_type for modules in routes.values() for module_type, _ in modules)
        )
        raise BertJaxError(
            f"{directory} is a sparse encoder with the modules {named}; supported are {' and '.join(DOCUMENTS)} for "
            f"documents, and the same or {QUERIES[0]} for queries"
        )
    (_, encoder), (_, pooling) = documents
    file = pooling / "config.json"
    config = read_json(file, SpladeConfig) if file.is_file() else {}
    how = config.get("pooling_strategy", SparseSettings.pooling)
    activation = config.get("activation_function", SparseSettings.activation)
    check_name(how, POOLINGS, f"pooling_strategy of {file}")
    check_name(activation, ACTIVATIONS, f"activation_function of {file}")
    return SparseSettings(
        **read_text_settings(directory, encoder),
        pooling=how,
        activation=activation,
        max_active_dims=read_beside(directory, "config_sentence_transformers.json").get("max_active_dims"),
        query_weights=queries != documents,
        frozen=queries != documents and read_static_config(queries[0][1]).get("frozen", False),
    )


def read_static_config(folder: Path) -> StaticConfig:
    file = folder / "config.json"
    return read_json(file, StaticConfig) if file.is_file() else {}


def read_routes(directory: Path) -> dict[str, list[tuple[str, Path]]]:
    """Return the kind and the folder of each module, in the order in which they run, for queries and for documents; {}
    if there is no modules.json."""
    path = directory / "modules.json"
    if not path.is_file():
        return {}
    modules = [(type_of_module(module), module["path"]) for module in read_json(path, list[ModuleEntry])]
    routes = {"query": modules, "document": modules}
    if [module_type for module_type, _ in modules] == ["Router"]:
        files = [directory / modules[0][1] / name for name in ROUTER_FILES]
        path = find_file(files)
        router = read_json(path, RouterConfig)
        module_types = {name: module_type.rsplit(".", 1)[-1] for name, module_type in router["types"].items()}
        routes = {
            task: [(module_types.get(name, ""), name) for name in names]
            for task, names in router["structure"].items()
        }
    if any(not is_inside_directory(f"./{name}") for modules in routes.values() for _, name in modules):
        raise BertJaxError(f"{path} names a folder outside of {directory}; copy it again from its source")
    same = {"MLMTransformer": DOCUMENTS[0]}
    return {
        task: [(same.get(module_type, module_type), path.parent / name) for module_type, name in modules]
        for task, modules in routes.items()
    }


def find_file(paths: list[Path]) -> Path:
    """Return the first of these files that is there."""
    if file := next((file for file in paths if file.is_file()), None):
        return file
    raise BertJaxError(f"{paths[0]} is missing; copy it again from its source")


def encoder_folder(directory: Path) -> Path:
    """Return the folder of a model's Hugging Face files, which a Router may keep apart from the directory's others."""
    documents = dict(read_routes(directory).get("document", []))
    return documents.get(DOCUMENTS[0], directory) if DOCUMENTS[1] in documents else directory


def query_weights_folder(directory: Path) -> Path | None:
    return dict(read_routes(directory).get("query", [])).get(QUERIES[0])


def open_query_weights(folder: Path, open_tokenizer: Callable[[], Tokenizer], entries: int) -> Tensors:
    """Open the weights of tokens in queries; those of embedding rows without a token are zeros."""
    if listed := read_static_config(folder).get("path"):
        # The path is the author's; the file itself comes with the directory.
        path = find_file([parent / PurePosixPath(listed).name for parent in (folder, folder.parent)])
        stored = Tensors(
            {"weight": (entries,)}, {"weight": partial(read_by_token, path, open_tokenizer, entries)}
        )
    else:
        stored = Tensors.from_directory(folder)
    shape = max(stored.shapes.get("weight", (entries,)), (entries,))

    def read() -> np.ndarray:
        weights = stored["weight"]
        return np.pad(weights, (0, shape[0] - len(weights)))

    name = f"{QUERY_WEIGHTS}.weight"
    return Tensors({name: shape}, {name: read}) if "weight" in stored else stored


def read_by_token(path: Path, open_tokenizer: Callable[[], Tokenizer], entries: int) -> np.ndarray:
    """Read weights by token from a JSON file; tokens that it lacks have 0."""
    weights, rust = np.zeros(entries, np.float32), open_tokenizer().rust
    for token, weight in read_json(path, dict[str, float]).items():
        number = rust.token_to_id(token)
        if number is None or number >= entries:
            raise BertJaxError(
                f"{path} has a weight for {token!r:.40}, which is not in the vocabulary; copy it again"
            )
        weights[number] = weight
    return weights


def write_sparse(
    directory: Path, settings: SparseSettings, entries: int, tokenizer: Tokenizer | None
) -> None:
    """Write the files of a sparse encoder beside a saved model, but not the weights of queries."""
    types = {"": f"{LIBRARY}MLMTransformer", POOLING_FOLDER: f"{LIBRARY}SpladePooling"}
    listed = list(types.items())
    if settings.query_weights:
        # The folder "" leaves the model's own files where transformers looks for them.
        router = {
            "types": {QUERY_FOLDER: f"{LIBRARY}SparseStaticEmbedding"} | types,
            "structure": {"query": [QUERY_FOLDER], "document": list(types)},
            "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
        }
        listed = [("", "sentence_transformers.models.Router")]
        write_json(directory / ROUTER_FILES[0], router)
        write_json(directory / QUERY_FOLDER / "config.json", {"frozen": settings.frozen})
        if tokenizer:
            tokenizer.save(directory / QUERY_FOLDER)
            file = directory / QUERY_FOLDER / "tokenizer_config.json"
            write_json(file, read_json(file) | {"model_max_length": settings.max_length})
    files: dict[str, Any] = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": folder, "type": module_type}
            for i, (folder, module_type) in enumerate(listed)
        ],
        f"{POOLING_FOLDER}/config.json": {
            "pooling_strategy": settings.pooling,
            "activation_function": settings.activation,
            "word_embedding_dimension": entries,
        },
        **files_of_texts(settings),
    }
    files["config_sentence_transformers.json"] |= {
        "model_type": "SparseEncoder", "similarity_fn_name": "dot", "max_active_dims": settings.max_active_dims,
    }  # fmt: skip
    for name, content in files.items():
        write_json(directory / name, content)
