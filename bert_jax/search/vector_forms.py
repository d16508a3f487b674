"""The kinds of vectors that `embed` writes: one for each text, dense or sparse, or one for each token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert_jax.core.output import atomic_file
from bert_jax.hub.layout import Layout
from bert_jax.inference.computations import SparseVector
from bert_jax.inference.runner import Runner, TextPipeline
from bert_jax.inference.sparse_vectors import SparsePipeline, stack_vectors
from bert_jax.inference.text_vectors import EmbeddingPipeline
from bert_jax.inference.token_vectors import TokenVectorPipeline, task_for
from bert_jax.search.vector_files import EMBEDDING
from bert_jax.text.truncation import windows_advice


@dataclass(frozen=True)
class VectorForm:
    name: str  # in messages
    flags: tuple[str, ...]  # of `embed` that are for it alone
    open: Callable[..., TextPipeline]  # what computes them, of a model and settings
    to_json: Callable[[Any], Any]  # a vector, or those of a text
    # Writes those of all texts, whose size is given, to a .npz file; None: they are written as arrays.
    save: Callable[[BinaryIO, Sequence, int], None] | None = None
    # Returns those of some texts as columns of a Parquet file.
    columns: Callable[[Sequence, int], dict[str, Any]] | None = None

    @property
    def advice(self) -> str:
        """How long texts are read whole; "" if they cannot be."""
        return "" if self.name == "token" else windows_advice()

    def write_npz_file(self, path: Path, vectors: Sequence, size: int) -> None:
        assert self.save
        with atomic_file(path) as new, open(new, "wb") as file:
            self.save(file, vectors, size)


def round_numbers(vector: np.ndarray) -> list[float]:
    return [round(float(x), 7) for x in vector]


def sparse_to_json(vector: SparseVector) -> dict[str, list]:
    return {"indices": vector.ids.tolist(), "values": round_numbers(vector.weights)}


def save_sparse(file: BinaryIO, vectors: Sequence[SparseVector], size: int) -> None:
    from scipy.sparse import save_npz

    save_npz(file, stack_vectors(vectors, size))


def sparse_columns(vectors: Sequence[SparseVector], size: int) -> dict[str, Any]:
    import pyarrow as pa

    stacked = stack_vectors(vectors, size)
    numbers = {"indices": stacked.indices, "values": stacked.data}
    ends = stacked.indptr.astype(np.int32)
    return {name: pa.ListArray.from_arrays(ends, array) for name, array in numbers.items()}


def open_token_pipeline(model: Runner, prompt: str | None = None, **settings: Any) -> TokenVectorPipeline:
    return TokenVectorPipeline(model, **task_for(model, prompt), **settings)


def tokens_to_json(vectors: np.ndarray) -> list[list[float]]:
    return [round_numbers(vector) for vector in vectors]


def join_tokens(vectors: Sequence[np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors [T, D] of all tokens, and where those of each text end, [N].

    >>> join_tokens([np.zeros((2, 4)), np.zeros((0, 4)), np.zeros((3, 4))], 4)[1].tolist()
    [2, 2, 5]
    """
    joined = np.concatenate([np.zeros((0, size), np.float32), *vectors])
    return joined, np.cumsum([len(of_text) for of_text in vectors])


def save_tokens(file: BinaryIO, vectors: Sequence[np.ndarray], size: int) -> None:
    joined, ends = join_tokens(vectors, size)
    np.savez(file, vectors=joined, ends=ends)


def token_columns(vectors: Sequence[np.ndarray], size: int) -> dict[str, Any]:
    import pyarrow as pa

    joined, ends = join_tokens(vectors, size)
    arrays = pa.FixedSizeListArray.from_arrays(joined.ravel(), size)
    return {EMBEDDING: pa.ListArray.from_arrays(np.concatenate([[0], ends]).astype(np.int32), arrays)}


DENSE = VectorForm("dense", ("dimensions", "quantize"), EmbeddingPipeline, round_numbers)
SPARSE = VectorForm(
    "sparse", ("max_active_dims",), SparsePipeline, sparse_to_json, save_sparse, sparse_columns
)
TOKENS = VectorForm("token", (), open_token_pipeline, tokens_to_json, save_tokens, token_columns)
FORMS = DENSE, SPARSE, TOKENS


def vector_form_of(layout: Layout) -> VectorForm:
    return SPARSE if layout.sparse else TOKENS if layout.multi_vector else DENSE
