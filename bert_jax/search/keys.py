"""Contents by their hashes: two are the same if their keys are."""

from collections.abc import Callable, Sequence

import numpy as np

from bert_jax.hashes import digest

KEY = np.dtype("S16")


def keys_of(contents: Sequence) -> np.ndarray:
    return np.frombuffer(b"".join(bytes.fromhex(digest(content)) for content in contents), KEY)


class Places:
    """Where the row of each key is, among those of several tables one after the other."""

    def __init__(self, tables: Sequence[np.ndarray]):
        """By the keys of each table's rows."""
        self.starts = np.zeros(1, np.int64)
        self.keys, self.places = np.empty(0, KEY), np.empty(0, np.int64)  # in the order of the keys
        self.add(tables)

    def add(self, tables: Sequence[np.ndarray]) -> None:
        """Tables behind those that are there."""
        keys = np.concatenate([self.keys, *tables])
        places = np.concatenate([self.places, np.arange(len(self.keys), len(keys))])
        order = np.argsort(keys, kind="stable")
        self.keys, self.places = keys[order], places[order]
        ends = self.starts[-1] + np.cumsum([len(table) for table in tables], dtype=np.int64)
        self.starts = np.concatenate([self.starts, ends])

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The place of each key's row; -1 where there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        near = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[near] == keys, self.places[near], -1)

    def rows(self, places: np.ndarray, table: Callable[[int], np.ndarray]) -> np.ndarray:
        """[N, ...]; `table` gives all rows of the one with that number."""
        numbers = np.searchsorted(self.starts, places, side="right") - 1
        rows = np.empty((len(places), *table(0).shape[1:]), np.float32)
        for number in np.unique(numbers):
            here = numbers == number
            rows[here] = table(number)[places[here] - self.starts[number]]
        return rows
