"""The confusion matrix: which classes are predicted in place of which."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True)
class ConfusionMatrix:
    names: list[str]
    counts: np.ndarray  # [true, predicted]
    labels: Sequence[str]  # the names that are classes of the model

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[str, str]], labels: Sequence[str]) -> Self:
        """Count (true, predicted) pairs; `labels` are in the order of display."""
        occurring = dict.fromkeys(name for pair in pairs for name in pair)
        names = [name for name in labels if name in occurring]
        names += [name for name in occurring if name not in names]
        number = {name: i for i, name in enumerate(names)}
        counts = np.zeros((len(names), len(names)), int)
        np.add.at(counts, tuple(np.array([[number[t], number[p]] for t, p in pairs]).T), 1)
        return cls(names, counts, labels)

    @property
    def largest(self) -> list[tuple[str, str, int]]:
        """Return (true, predicted, count) of each confusion, the most frequent first."""
        wrong = self.counts - np.diag(self.counts.diagonal())
        order = np.argsort(-wrong, axis=None, kind="stable")[: np.count_nonzero(wrong)]
        positions = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [(self.names[t], self.names[p], int(wrong[t, p])) for t, p in positions]

    def matrix(self, most: int) -> tuple[np.ndarray, list[str], list[str]]:
        """Return the counts, the true classes of the rows and the predicted classes of the columns. If there are more
        than `most` classes, these are at most `most` with the largest confusions, and a last column for the others."""
        rows, columns = np.flatnonzero(self.counts.any(1)).tolist(), list(range(len(self.names)))
        if len(columns) > most:
            rows, columns = self.most_confused(most)
        others = len(self.names) - len(columns)
        # Names that are not classes of the model get a column only if they are predicted.
        columns = [i for i in columns if self.names[i] in self.labels or self.counts[:, i].any()]
        counts = self.counts[np.ix_(rows, columns)]
        true, predicted = ([self.names[i] for i in side] for side in (rows, columns))
        if others:
            counts = np.column_stack([counts, self.counts[rows].sum(1) - counts.sum(1)])
            predicted.append(f"{others} others")
        return counts, true, predicted

    def most_confused(self, most: int) -> tuple[list[int], list[int]]:
        rows: set[int] = set()
        columns: set[int] = set()
        for true, predicted, _ in self.largest:
            pair = {self.names.index(true), self.names.index(predicted)}
            if len(columns | pair) > most:
                break
            rows.add(self.names.index(true))
            columns |= pair
        return sorted(rows), sorted(columns)
