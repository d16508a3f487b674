"""Cache computed numbers in the files of a folder, looked up by the contents that they were computed from.

A file holds keys, which are hashes of contents, and a row of numbers for each key. It is written atomically and never
changed, so an interrupted command can resume, and several commands may fill the same folder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bert_jax.core.errors import BertJaxError, of_system
from bert_jax.core.hashes import digest
from bert_jax.core.output import errors_of, replacing
from bert_jax.inference.batching import tokens_in_batch
from bert_jax.search.content_keys import KEY, Places, keys_of


@dataclass(frozen=True)
class Part:
    """The byte offset of the rows in a file, and their shape [N, ...]."""

    path: Path
    offset: int
    shape: tuple[int, ...]

    def rows(self) -> np.ndarray:
        return np.memmap(self.path, np.float32, "r", self.offset, self.shape)


class Cache:
    """The cached rows of one kind from one model; `maker` holds all that determines them besides the contents."""

    def __init__(self, folder: Path, kind: str, maker: Any):
        self.kind, self.folder = kind, folder / f"{kind}-{digest(maker)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise of_system(error, folder) from error
        self.parts: list[Part] = []
        self.known = Places([])
        self.include([self.open(path) for path in sorted(self.folder.glob("*.npy"))])

    def of(self, contents: Sequence, compute: Callable[[list], np.ndarray]) -> "Rows":
        """Return the rows of contents; `compute` computes those that are not in the folder."""
        keys = keys_of(contents)
        missing, size = self.missing(keys), tokens_in_batch()
        added = []
        with tqdm(total=len(missing), unit=" texts", desc=self.kind, disable=None, delay=2) as bar:
            for block in (missing[first : first + size] for first in range(0, len(missing), size)):
                # A resumed run computes the same contents together, so that its results are bit-identical.
                added.append(self.write(keys[block], compute([contents[i] for i in block])))
                bar.update(len(block))
        self.include(added)
        return Rows(self, self.known.find(keys))

    def missing(self, keys: np.ndarray) -> np.ndarray:
        """Return the indices of the keys that are not in the folder, without duplicate keys."""
        absent = np.flatnonzero(self.known.find(keys) < 0)
        first = np.unique(keys[absent], return_index=True)[1]
        return absent[np.sort(first)]

    def rows(self, places: np.ndarray) -> np.ndarray:
        """Return the rows [N, ...], read from the files each time so that none stays in memory."""
        return self.known.rows(places, lambda number: self.parts[number].rows())

    def write(self, keys: np.ndarray, rows: np.ndarray) -> tuple[Part, np.ndarray]:
        path = self.folder / f"{digest(keys.tobytes().hex())}.npy"
        with replacing(path, shared=True) as new, open(new, "wb") as file:
            np.save(file, keys)
            np.save(file, rows.astype(np.float32))
        return self.open(path)

    def open(self, path: Path) -> tuple[Part, np.ndarray]:
        with errors_of(path), open(path, "rb") as file:
            try:
                keys = np.load(file)
                np.lib.format.read_magic(file)
                shape, _, _ = np.lib.format.read_array_header_1_0(file)
                part = Part(path, file.tell(), shape)
                if keys.dtype != KEY or keys.shape != shape[:1] or not part.rows().nbytes:
                    raise ValueError("the numbers of keys and rows differ")
            except (ValueError, EOFError) as error:
                raise BertJaxError(f"{path} is damaged; delete it, and run the same command again") from error
        return part, keys

    def include(self, opened: Sequence[tuple[Part, np.ndarray]]) -> None:
        self.parts += [part for part, _ in opened]
        self.known.add([keys for _, keys in opened])


@dataclass(frozen=True)
class Rows:
    """The rows of a list of contents, read only when a slice or indices select them."""

    cache: Cache
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, which) -> np.ndarray:
        return self.cache.rows(self.places[which])
