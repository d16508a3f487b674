"""The rows that a model computes for the passages of a segment: the files that hold them, and what is made of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.npy_writer import npy_writer
from bert_jax.search import fixed_encodings, sparse
from bert_jax.search.index_manifest import SPARSE_ROWS, TOKEN_ROWS, IndexedModel
from bert_jax.search.ragged_rows import RaggedRows
from bert_jax.search.segment_files import SegmentFiles

TOKEN_STARTS = "token_vectors.starts.npy"  # of the token vectors of each passage


@dataclass(frozen=True)
class RowFiles:
    """Rows of one shape: vectors."""

    name: str
    model: IndexedModel

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def derived(self) -> tuple[str, ...]:
        """The files that are made of the rows."""
        return ()

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.model.dimensions,)

    def open(self, files: SegmentFiles, passages: int) -> Any:
        """Return the rows, of which an index or indices select some."""
        return files.array(self.name, np.float32, passages, *self.row_shape)

    def empty_block(self, count: int) -> np.ndarray:
        return np.empty((count, *self.row_shape), np.float32)

    @contextmanager
    def writer(self, folder: Path) -> Iterator[Callable[[np.ndarray], None]]:
        """Yield a function that appends a block of rows."""
        with npy_writer(folder / self.name, np.float32) as file:
            yield file.append

    def derive(self, folder: Path) -> None:
        """Write the derived files."""


class SparseRowFiles(RowFiles):
    """Rows [2, A] of sparse vectors: the ids of tokens, and their weights."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (2, self.model.max_active_dims)

    @property
    def derived(self) -> tuple[str, ...]:
        return sparse.POSTINGS.names

    def derive(self, folder: Path) -> None:
        sparse.build_postings(folder, self.model.dimensions)


class TokenRowFiles(RowFiles):
    """Token vectors, of which each passage has its own number, in bytes."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, TOKEN_STARTS)

    @property
    def derived(self) -> tuple[str, ...]:
        return (fixed_encodings.FILE,)

    def open(self, files: SegmentFiles, passages: int) -> RaggedRows:
        values = files.array(self.name, np.int8, None, self.model.dimensions)
        try:
            return RaggedRows(values, files.array(TOKEN_STARTS, np.int64, passages + 1))
        except ValueError as error:
            raise files.damage_error(TOKEN_STARTS) from error

    def empty_block(self, count: int) -> np.ndarray:
        return np.empty(count, object)

    @contextmanager
    def writer(self, folder: Path) -> Iterator[Callable[[np.ndarray], None]]:
        with (
            npy_writer(folder / self.name, np.int8) as values,
            npy_writer(folder / TOKEN_STARTS, np.int64) as starts,
        ):
            starts.append(np.zeros(1, np.int64))

            def append(block: np.ndarray) -> None:
                rows = RaggedRows.join(block)
                starts.append(rows.starts[1:] + values.rows)
                values.append(rows.values)

            yield append

    def derive(self, folder: Path) -> None:
        passages = len(np.load(folder / TOKEN_STARTS, mmap_mode="r")) - 1
        fixed_encodings.write_encodings(folder, self.open(SegmentFiles(folder), passages))


ROW_FILES = {SPARSE_ROWS: SparseRowFiles, TOKEN_ROWS: TokenRowFiles}


def row_files(models: Mapping[str, IndexedModel]) -> list[RowFiles]:
    """Return the files of the rows of each model."""
    return [ROW_FILES.get(name, RowFiles)(name, model) for name, model in models.items()]
