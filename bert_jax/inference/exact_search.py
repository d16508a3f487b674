"""Rank documents for queries by comparing their vectors with all of them.

Scores are compared as float32. Of two documents with equal scores, the one with the greater id comes first.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from bert_jax.metrics.retrieval import DEPTH

BLOCK = 1 << 26  # the most scores in memory at once
WIDTH = 1 << 15  # the most documents compared at once
NOTHING = np.empty(0, np.int64), np.empty(0, np.float32)


class VectorSequence(Protocol):
    """Vectors [N, D] that are read in slices: an array or files."""

    def __len__(self) -> int: ...

    def __getitem__(self, which: slice, /) -> np.ndarray: ...


def search_exact(
    queries: VectorSequence,
    documents: VectorSequence,
    ids: Sequence[str] | None,
    count: int = DEPTH,
    without: Sequence[np.ndarray] | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each query [D], the indices of the `count` documents [N, D] with the highest inner products, best
    first, and their scores.

    Without `ids`, a later document counts as having the greater id. `without` holds, for each query, the sorted indices
    of the documents to exclude."""
    tie_ranks = np.arange(len(documents))[::-1] if ids is None else rank_ties(ids)
    width = max(1, min(WIDTH, len(documents)))
    size = max(1, BLOCK // width)
    for first in range(0, len(queries), size):
        block = queries[first : first + size]
        hidden = without[first : first + size] if without is not None else [NOTHING[0]] * len(block)
        best = [NOTHING] * len(block)
        for start in range(0, len(documents), width):
            scores = (block @ documents[start : start + width].T).astype(np.float32, copy=False)
            best = [
                merge_best(known, row, start, some, tie_ranks, count)
                for known, row, some in zip(best, scores, hidden, strict=True)
            ]
            del scores  # free the memory before the next scores are computed
        yield from best


def merge_best(
    best_so_far, scores: np.ndarray, start: int, hidden: np.ndarray, tie_ranks: np.ndarray, count: int
):
    """Merge the `known` best (indices, scores) with the `scores` of documents from `start` on; return the `count` best.

    `hidden` are the sorted indices of the query's excluded documents. `scores` are overwritten."""
    scores[hidden[slice(*np.searchsorted(hidden, (start, start + len(scores))))] - start] = -np.inf
    minimum = best_so_far[1][-1] if len(best_so_far[1]) == count else np.finfo(np.float32).min  # above -inf
    among = np.flatnonzero(scores >= minimum)
    indices, scores = np.append(best_so_far[0], among + start), np.append(best_so_far[1], scores[among])
    order = top_k(scores, tie_ranks[indices], count)
    return indices[order], scores[order]


def rank_ties(ids: Sequence[str]) -> np.ndarray:
    """Return the rank of each document among documents with equal scores."""
    tie_ranks = np.empty(len(ids), np.int64)
    tie_ranks[sorted(range(len(ids)), key=ids.__getitem__, reverse=True)] = np.arange(len(ids))
    return tie_ranks


def top_k(scores: np.ndarray, tie_ranks: np.ndarray, count: int = DEPTH) -> np.ndarray:
    """Return the indices of a query's `count` highest scores, best first; for `tie_ranks` see `rank_ties`."""
    among = np.arange(len(scores))
    if count < len(scores):
        among = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    return among[np.lexsort((tie_ranks[among], -scores[among]))][:count]
