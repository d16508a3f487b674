"""The files of BGE-M3: an embedder with two linear layers more, in `colbert_linear.pt` and `sparse_linear.pt`.

The first gives each token a vector, the second each token a weight. `sentence-transformers` reads such a directory as
the dense embedder alone, so we write its files, and the two beside them.
"""

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings
from bert_jax.hub.sentence_transformers import EmbedderSettings, Projection, TextSettings
from bert_jax.hub.sparse_encoder import SparseSettings
from bert_jax.hub.tensors import Tensors
from bert_jax.hub.torch_pickle import read_torch_tensors, write_torch_tensors

TOKEN_WEIGHTS = "token_weights"  # the module of the second layer; the first is the projection
# The names of the files, and the prefixes of their tensors.
COLBERT, SPARSE = "colbert_linear", "sparse_linear"


@dataclass(frozen=True)
class M3Settings:
    """How a model makes a vector of a text, a sparse one and vectors of its tokens, all from the same states."""

    embedder: EmbedderSettings
    sparse: SparseSettings
    multi_vector: MultiVectorSettings


def file_of(directory: Path, name: str) -> Path:
    return directory / f"{name}.pt"


def open_linear_layers(directory: Path, states: int) -> Tensors:
    """Open the two layers, which read states of this width; there are no tensors if there is no such file."""
    paths = {name: file_of(directory, name) for name in (COLBERT, SPARSE)}
    missing = [path.name for path in paths.values() if not path.is_file()]
    whole = Tensors({}, {})
    if len(missing) == len(paths):
        return whole
    if missing:
        raise BertJaxError(
            f"{directory} has one of the two linear layers of BGE-M3, but not {missing[0]}; copy it again from its "
            "source"
        )
    for name, path in paths.items():
        tensors = Tensors(*read_torch_tensors(path))
        width = next(iter(tensors.shapes.get("bias", ())), 0)
        is_linear = tensors.shapes == {"weight": (width, states), "bias": (width,)} and width
        if not is_linear or (name == SPARSE and width != 1):
            described = ", ".join(f"{key} {[*shape]}" for key, shape in [*tensors.shapes.items()][:2])
            raise BertJaxError(
                f"{path} holds {described or 'no tensor':.100}, not the weight and the bias of a layer that reads "
                f"states of {states}; copy it again from its source"
            )
        whole = whole.merge(tensors.renamed(partial(add_prefix, name)))
    return whole


def add_prefix(name: str, tensor: str) -> tuple[str]:
    return (f"{name}.{tensor}",)


def make_settings(embedder: EmbedderSettings, width: int) -> M3Settings:
    """Return the settings of a model that embeds so and gives tokens vectors of this width."""
    texts = {field.name: getattr(embedder, field.name) for field in fields(TextSettings)}
    tokens = MultiVectorSettings(
        **texts, projection=Projection(width), first_token=False, similarity="meanmaxsim"
    )
    return M3Settings(embedder, SparseSettings(**texts, token_weights=True), tokens)


def open_m3(
    directory: Path, embedder: EmbedderSettings | None, states: int
) -> tuple[M3Settings | None, Tensors]:
    """Return how a directory's model embeds if it has the two layers, and their tensors.

    `embedder` are the settings in the files of sentence-transformers, None without these, and `states` is the width of
    the hidden states.
    """
    layers = open_linear_layers(directory, states)
    if not layers:
        return None, layers
    embedder = embedder or EmbedderSettings(pooling="cls")  # as FlagEmbedding reads it
    if embedder.projection:
        raise BertJaxError(f"{directory} has the linear layers of BGE-M3 and a Dense, which is not supported")
    return make_settings(embedder, layers.shapes[f"{COLBERT}.bias"][0]), layers


def write_linear_layers(directory: Path, tensors: dict[str, np.ndarray]) -> None:
    """Take the two layers out of the tensors of a model, and write their files."""
    for layer in (COLBERT, SPARSE):
        names = [name for name in tensors if name.startswith(f"{layer}.")]
        own = {name.removeprefix(f"{layer}."): tensors.pop(name) for name in names}
        write_torch_tensors(file_of(directory, layer), own)
