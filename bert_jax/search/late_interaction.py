"""MaxSim of a query with stored passages, whose token vectors are in bytes.

Token vectors have length 1. Stored, their largest number becomes 127, and their length is set again when they are read:
so each is as precise as its own numbers allow, and no scale need be stored. Products of stored vectors with a query
whose numbers are whole, too, are exact in float32. So the score of a passage does not depend on where it is stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_jax.inference.max_sim import NO_TOKENS
from bert_jax.search.candidates import score_ahead
from bert_jax.search.ragged_rows import RaggedRows

LARGEST = 127  # of the numbers of a stored vector
EXACT = 1 << 23  # whole numbers in float32 are exact up to twice this
TOKENS_AT_ONCE = 1 << 12  # whose products with a query are in memory at once


def to_whole_numbers(vectors: np.ndarray) -> np.ndarray:
    """Return token vectors [T, D] in bytes.

    >>> to_whole_numbers(np.float32([[0.6, -0.8], [0, 1]])).tolist()
    [[95, -127], [0, 127]]
    """
    largest = np.maximum(np.abs(vectors).max(1, keepdims=True, initial=0), np.finfo(np.float32).tiny)
    return np.rint(vectors / largest * LARGEST).astype(np.int8)


def inverse_lengths(tokens: np.ndarray) -> np.ndarray:
    """Return one over the length of each token vector [T, D]; 0 if all its numbers are 0."""
    squares = np.einsum("ij,ij->i", tokens, tokens)
    return np.divide(1, np.sqrt(squares), out=np.zeros(len(tokens), np.float32), where=squares > 0)


@dataclass(frozen=True)
class TokenQuery:
    """The token vectors of a query [Q, D], and the tokens."""

    vectors: np.ndarray
    tokens: Sequence[str]

    @cached_property
    def scale(self) -> float:
        longest = float(np.linalg.norm(self.vectors, axis=1).max(initial=0)) or 1.0
        return EXACT / (LARGEST * self.vectors.shape[1] ** 0.5 * longest)

    @cached_property
    def whole(self) -> np.ndarray:
        return np.rint(self.vectors * self.scale).astype(np.float32)

    def products(self, tokens: np.ndarray) -> np.ndarray:
        """Return the inner products [Q, T] of the query's vectors with stored ones [T, D]."""
        numbers = tokens.astype(np.float32)
        return (self.whole @ numbers.T) * (inverse_lengths(numbers) / np.float32(self.scale))

    def score(self, rows: RaggedRows, passages: np.ndarray) -> np.ndarray:
        """Return the MaxSim of each of these passages."""
        counts = rows.starts[passages + 1] - rows.starts[passages]
        scores = np.full(len(passages), NO_TOKENS, np.float32)
        filled = np.flatnonzero(counts)
        blocks = list(group_slices(counts[filled], TOKENS_AT_ONCE))

        def score_block(block: slice) -> np.ndarray:
            chosen = filled[block]
            tokens = np.concatenate([rows[position] for position in passages[chosen].tolist()])
            starts = np.cumsum(counts[chosen]) - counts[chosen]
            return np.maximum.reduceat(self.products(tokens), starts, axis=1).sum(0, dtype=np.float64)

        for block, of_block in zip(blocks, score_ahead(score_block, blocks), strict=True):
            scores[filled[block]] = of_block
        return scores


def group_slices(counts: np.ndarray, most: int) -> Iterator[slice]:
    """Yield slices of items that have at most so many tokens together, or one item.

    >>> list(group_slices(np.array([3, 3, 9, 2]), 6))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    first = total = 0
    for position, count in enumerate(counts.tolist()):
        if position > first and total + count > most:
            yield slice(first, position)
            first, total = position, 0
        total += count
    if first < len(counts):
        yield slice(first, len(counts))
