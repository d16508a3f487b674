"""Cache computed numbers in the files of a folder, looked up by the contents that they were computed from.

A file holds keys, which are hashes of contents, and a row of numbers for each key; rows of different lengths follow the
list of their starts. A file is written atomically and never changed, so an interrupted command can resume, and several
commands may fill the same folder.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert_jax.core.errors import BertJaxError, explain_os_error
from bert_jax.core.files import write_atomically
from bert_jax.core.hashes import json_digest
from bert_jax.core.output import explain_os_errors
from bert_jax.core.progress import Progress
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.search.ragged_rows import RaggedRows
from bert_jax.search.vector_files import gather_rows

KEY = np.dtype("S16")
PARTS = 8  # in which the contents of a file are computed; progress is shown after each


def content_keys(contents: Sequence) -> np.ndarray:
    return np.frombuffer(b"".join(bytes.fromhex(json_digest(content)) for content in contents), KEY)


class KeyIndex:
    """The index of each key's row in the concatenation of several tables, each given as the keys of its rows."""

    def __init__(self, tables: Sequence[np.ndarray]):
        keys = np.concatenate([np.empty(0, KEY), *tables])
        self.positions = np.argsort(keys, kind="stable")
        self.keys = keys[self.positions]
        self.starts = np.cumsum([0, *map(len, tables)])

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the index of each key's row, or -1 if the key is unknown."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        near = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[near] == keys, self.positions[near], -1)

    def rows(self, positions: np.ndarray, table: Callable[[int], Any]) -> np.ndarray:
        """Return the rows at these indices, [N, ...]; for `table` see `gather_rows`."""
        return gather_rows(positions, self.starts, table)


class RowCache:
    """The cached rows of one kind from one model; `maker` holds all that determines them besides the contents."""

    def __init__(self, folder: Path, unit: str, maker: Any):
        self.unit, self.folder = unit, folder / f"{unit}-{json_digest(maker)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explain_os_error(error, folder) from error
        self.files = [open_file(path) for path in sorted(self.folder.glob("*.npy"))]
        self.key_index = KeyIndex([file.keys for file in self.files])

    def get_or_compute(self, contents: Sequence, compute: Callable[[list], np.ndarray]) -> "CachedRows":
        """Return the rows of contents; `compute` computes those that are not in the folder."""
        keys, size = content_keys(contents), tokens_per_batch()
        absent = np.flatnonzero(self.key_index.find(keys) < 0)
        missing = absent[np.sort(np.unique(keys[absent], return_index=True)[1])]  # without duplicate keys
        with Progress(self.unit, len(missing)) as progress:
            for block in split(missing, size):
                # A resumed run computes the same contents together, so that its results are bit-identical.
                rows = []
                for part in split(block, -(-size // PARTS)):
                    rows.append(compute([contents[i] for i in part]))
                    progress.advance(len(part))
                self.write_file(keys[block], np.concatenate(rows))
        if len(missing):
            self.key_index = KeyIndex([file.keys for file in self.files])
        return CachedRows(self.key_index.find(keys), self.key_index, tuple(self.files))

    def write_file(self, keys: np.ndarray, rows: np.ndarray) -> None:
        path = self.folder / f"{json_digest(keys.tobytes().hex())}.npy"
        content = BytesIO()  # if the disk is full, np.save to a file raises an error that does not say so
        ragged = RaggedRows.join(rows) if rows.dtype == object else None
        arrays = (rows.astype(np.float32),) if ragged is None else (ragged.starts, ragged.values)
        for array in (keys, *arrays):
            np.save(content, array)
        write_atomically(path, content.getvalue(), shared=True)
        self.files.append(open_file(path))


def split(numbers: np.ndarray, size: int) -> Iterator[np.ndarray]:
    yield from (numbers[first : first + size] for first in range(0, len(numbers), size))


@dataclass(frozen=True)
class CacheFile:
    """The keys of the rows in a file, the byte offset of the rows, their type and their shape [N, ...]; of rows of
    different lengths, also where each starts."""

    path: Path
    keys: np.ndarray
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    starts: np.ndarray | None

    def rows(self) -> np.ndarray | RaggedRows:
        # No bytes cannot be mapped.
        values = (
            np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
            if all(self.shape)
            else np.empty(self.shape, self.dtype)
        )
        return values if self.starts is None else RaggedRows(values, self.starts)


def open_file(path: Path) -> CacheFile:
    with explain_os_errors(path), open(path, "rb") as file:
        try:
            keys, starts = np.load(file), None
            shape, dtype = read_header(file)
            if dtype == np.int64:
                starts = np.fromfile(file, np.int64, shape[0])
                shape, dtype = read_header(file)
            opened = CacheFile(path, keys, file.tell(), dtype, shape, starts)
            if keys.dtype != KEY or keys.shape != opened.rows().shape[:1] or not len(keys):
                raise ValueError("the numbers of keys and rows differ")
        except (ValueError, EOFError) as error:
            raise BertJaxError(f"{path} is damaged; delete it, and run the same command again") from error
    return opened


def read_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype]:
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype


@dataclass(frozen=True)
class CachedRows:
    """The rows of a list of contents, read only when a slice or indices select them."""

    positions: np.ndarray
    key_index: KeyIndex
    files: Sequence[CacheFile]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, which) -> np.ndarray:
        # The files are mapped each time, so that none stays in memory.
        return self.key_index.rows(self.positions[which], lambda number: self.files[number].rows())
