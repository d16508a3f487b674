"""Rows of different lengths, side by side in one array."""

from collections.abc import Sequence

import numpy as np


class RaggedRows:
    """Row `i` is values[starts[i]:starts[i + 1]]; several rows are an array [N] of arrays."""

    dtype = np.dtype(object)

    def __init__(self, values: np.ndarray, starts: np.ndarray):
        self.values, self.starts = values, starts
        self.shape = (len(starts) - 1,)
        if not len(starts) or starts[0] or len(values) != starts[-1] or (np.diff(starts) < 0).any():
            raise ValueError("rows do not start where others end")

    @classmethod
    def join(cls, rows: Sequence[np.ndarray] | np.ndarray) -> "RaggedRows":
        """
        >>> RaggedRows.join([np.zeros((2, 3)), np.zeros((0, 3)), np.zeros((1, 3))]).starts
        array([0, 2, 2, 3])
        """
        return cls(np.concatenate(list(rows)), np.cumsum([0, *map(len, rows)], dtype=np.int64))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: int | np.ndarray):
        if isinstance(which, np.ndarray):
            return stack_ragged([self[position] for position in which.tolist()])
        return self.values[self.starts[which] : self.starts[which + 1]]


def stack_ragged(rows: Sequence[np.ndarray]) -> np.ndarray:
    """
    >>> stack_ragged([np.zeros(2), np.zeros(2)]).shape
    (2,)
    """
    stacked = np.empty(len(rows), object)
    for position, row in enumerate(rows):  # at once, rows of one length would become one array
        stacked[position] = row
    return stacked
