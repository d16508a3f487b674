"""The modules of `sentence-transformers` that have weights of their own beside those of an encoder."""

from functools import partial
from pathlib import Path

import numpy as np

from bert_jax.hub import multi_vector_encoder, sentence_transformers, sparse_encoder
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import PROJECTION, TextSettings
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS, SparseSettings
from bert_jax.hub.tensors import Tensors
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_directory import open_tokenizer


def folders_beside(directory: Path) -> dict[str, Path]:
    """Return the folders of these modules, by the prefixes of their tensors."""
    folders = {
        PROJECTION: sentence_transformers.projection_folder(directory),
        QUERY_WEIGHTS: sparse_encoder.query_weights_folder(directory),
    }
    return {prefix: folder for prefix, folder in folders.items() if folder}


def open_beside(directory: Path, settings: TextSettings | None, entries: int) -> Tensors:
    """Open the tensors of these modules, for a model with so many entries in its vocabulary."""
    folders = folders_beside(directory)
    if isinstance(settings, SparseSettings):
        if not settings.query_weights:
            return Tensors({}, {})
        tokenizer = partial(open_tokenizer, sparse_encoder.encoder_folder(directory))
        return sparse_encoder.open_query_weights(folders[QUERY_WEIGHTS], tokenizer, entries)
    if getattr(settings, "projection", None) and PROJECTION in folders:
        projection = Tensors.from_directory(folders[PROJECTION])
        return projection.renamed(lambda name: (f"{PROJECTION}.{name}",))
    return Tensors({}, {})


def write_text_settings(directory: Path, layout: Layout, tokenizer: Tokenizer | None) -> None:
    """Write how a model turns texts into vectors, if it does: all files of these modules but their weights."""
    width = layout.config.hidden_size
    if layout.embedder:
        sentence_transformers.write_embedder(directory, layout.embedder, width)
    if layout.sparse:
        sparse_encoder.write_sparse(directory, layout.sparse, layout.vector_size, tokenizer)
    if layout.multi_vector:
        multi_vector_encoder.write_multi_vector(directory, layout.multi_vector, width)


def take_beside(tensors: dict[str, np.ndarray], directory: Path, tokens: int | None) -> dict[Path, dict]:
    """Take the tensors of these modules out of those of a model, and return them by the folders to save them in.

    Of the weights of queries, keep those of `tokens`: sentence-transformers refuses any for rows without a token.
    """
    beside: dict[Path, dict] = {}
    for prefix, folder in folders_beside(directory).items():
        beside[folder] = {}
        for name in [name for name in tensors if name.startswith(f"{prefix}.")]:
            taken = tensors.pop(name)
            beside[folder][name[len(prefix) + 1 :]] = taken[:tokens] if prefix == QUERY_WEIGHTS else taken
    return beside
