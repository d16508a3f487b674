"""Cache computed numbers in the files of a folder, looked up by the contents that they were computed from.

A file holds keys, which are hashes of contents, and a row of numbers for each key. It is written atomically and never
changed, so an interrupted command can resume, and several commands may fill the same folder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError, explain_os_error
from bert_jax.core.files import write_atomically
from bert_jax.core.hashes import json_digest
from bert_jax.core.output import explain_os_errors
from bert_jax.core.progress import Progress
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.search.content_keys import KEY, KeyIndex, content_keys


@dataclass(frozen=True)
class CacheFile:
    """The byte offset of the rows in a file, and their shape [N, ...]."""

    path: Path
    offset: int
    shape: tuple[int, ...]

    def rows(self) -> np.ndarray:
        return np.memmap(self.path, np.float32, "r", self.offset, self.shape)


class RowCache:
    """The cached rows of one kind from one model; `maker` holds all that determines them besides the contents."""

    def __init__(self, folder: Path, kind: str, maker: Any):
        self.kind, self.folder = kind, folder / f"{kind}-{json_digest(maker)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explain_os_error(error, folder) from error
        self.parts: list[CacheFile] = []
        self.key_index = KeyIndex([])
        self.add_files([self.open_file(path) for path in sorted(self.folder.glob("*.npy"))])

    def get_or_compute(self, contents: Sequence, compute: Callable[[list], np.ndarray]) -> "CachedRows":
        """Return the rows of contents; `compute` computes those that are not in the folder."""
        keys = content_keys(contents)
        missing, size = self.missing(keys), tokens_per_batch()
        added = []
        with Progress(self.kind, len(missing)) as progress:
            for block in (missing[first : first + size] for first in range(0, len(missing), size)):
                # A resumed run computes the same contents together, so that its results are bit-identical.
                added.append(self.write_file(keys[block], compute([contents[i] for i in block])))
                progress.advance(len(block))
        self.add_files(added)
        return CachedRows(self, self.key_index.find(keys))

    def missing(self, keys: np.ndarray) -> np.ndarray:
        """Return the indices of the keys that are not in the folder, without duplicate keys."""
        absent = np.flatnonzero(self.key_index.find(keys) < 0)
        first = np.unique(keys[absent], return_index=True)[1]
        return absent[np.sort(first)]

    def rows(self, places: np.ndarray) -> np.ndarray:
        """Return the rows [N, ...], read from the files each time so that none stays in memory."""
        return self.key_index.rows(places, lambda number: self.parts[number].rows())

    def write_file(self, keys: np.ndarray, rows: np.ndarray) -> tuple[CacheFile, np.ndarray]:
        path = self.folder / f"{json_digest(keys.tobytes().hex())}.npy"
        content = BytesIO()  # if the disk is full, np.save to a file raises an error that does not say so
        np.save(content, keys)
        np.save(content, rows.astype(np.float32))
        write_atomically(path, content.getvalue(), shared=True)
        return self.open_file(path)

    def open_file(self, path: Path) -> tuple[CacheFile, np.ndarray]:
        with explain_os_errors(path), open(path, "rb") as file:
            try:
                keys = np.load(file)
                np.lib.format.read_magic(file)
                shape, _, _ = np.lib.format.read_array_header_1_0(file)
                part = CacheFile(path, file.tell(), shape)
                if keys.dtype != KEY or keys.shape != shape[:1] or not part.rows().nbytes:
                    raise ValueError("the numbers of keys and rows differ")
            except (ValueError, EOFError) as error:
                raise BertJaxError(f"{path} is damaged; delete it, and run the same command again") from error
        return part, keys

    def add_files(self, opened: Sequence[tuple[CacheFile, np.ndarray]]) -> None:
        self.parts += [part for part, _ in opened]
        self.key_index.add([keys for _, keys in opened])


@dataclass(frozen=True)
class CachedRows:
    """The rows of a list of contents, read only when a slice or indices select them."""

    cache: RowCache
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, which) -> np.ndarray:
        return self.cache.rows(self.places[which])
