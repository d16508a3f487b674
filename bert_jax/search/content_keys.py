"""Identify contents by their hashes: contents with equal keys are taken to be equal."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.core.hashes import json_digest

KEY = np.dtype("S16")


def content_keys(contents: Sequence) -> np.ndarray:
    return np.frombuffer(b"".join(bytes.fromhex(json_digest(content)) for content in contents), KEY)


class KeyIndex:
    """The index of each key's row in the concatenation of several tables."""

    def __init__(self, tables: Sequence[np.ndarray]):
        """Each table is given as the keys of its rows."""
        self.starts = np.zeros(1, np.int64)
        self.keys, self.places = np.empty(0, KEY), np.empty(0, np.int64)  # both sorted by key
        self.add(tables)

    def add(self, tables: Sequence[np.ndarray]) -> None:
        """Append tables after the existing ones."""
        keys = np.concatenate([self.keys, *tables])
        places = np.concatenate([self.places, np.arange(len(self.keys), len(keys))])
        order = np.argsort(keys, kind="stable")
        self.keys, self.places = keys[order], places[order]
        ends = self.starts[-1] + np.cumsum([len(table) for table in tables], dtype=np.int64)
        self.starts = np.concatenate([self.starts, ends])

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the index of each key's row, or -1 if the key is unknown."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        near = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[near] == keys, self.places[near], -1)

    def tables(self, places: np.ndarray) -> list[int]:
        """Return the numbers of the tables that hold the rows at these indices."""
        return np.unique(np.searchsorted(self.starts, places, side="right") - 1).tolist()

    def rows(self, places: np.ndarray, table: Callable[[int], Any]) -> np.ndarray:
        """Return the rows at these indices, [N, ...]; `table(i)` returns all rows of table `i`, as an array or what
        reads the selected rows."""
        numbers = np.searchsorted(self.starts, places, side="right") - 1
        first = int(numbers[0]) if len(numbers) else 0
        rows = np.empty((len(places), *table(first).shape[1:]), np.float32)
        for number in np.unique(numbers):
            here = numbers == number
            rows[here] = table(number)[places[here] - self.starts[number]]
        return rows
