"""Rankings of passages, and their fusion."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bert_jax.metrics.retrieval import DEPTH

# Standard deviations between the mean of a ranking's first scores, which becomes 0.5, and what becomes 0 or 1.
SPREAD = 3
PassagePosition = tuple[int, int]  # the index of a segment, and of a passage in it
Ranking = dict[PassagePosition, float]  # passages and their scores, best first


class Explanation(Protocol):
    """What made the scores of passages."""

    def explain(self, segment: int, passage: int) -> dict[str, float]:
        """Return what each word added to the score of a passage."""


Ranked = tuple[Ranking, Explanation | None]


@dataclass(frozen=True)
class RankingEntry:
    """The rank and the score of a passage in one ranking: of a retriever, of the fusion or of the reranker."""

    rank: int
    score: float
    # What each word added, or each token of a sparse vector, or each token of a query with the word that it matched.
    words: dict[str, float] = field(default_factory=dict)


def fuse_rankings(
    rankings: Mapping[str, Ranking], weights: Mapping[str, float]
) -> dict[PassagePosition, float]:
    """Return, for each passage in any ranking, the sum of weight x scaled score over the rankings that contain it. The
    first scores of each ranking are brought to one mean and spread.

    >>> a, b = (0, 1), (0, 2)
    >>> fuse_rankings({"keywords": {a: 9.0, b: 3.0}, "vectors": {b: 0.7}}, {"keywords": 3, "vectors": 1})
    {(0, 1): 2.0, (0, 2): 1.5}
    """
    fused: dict[PassagePosition, float] = {}
    for name, ranking in rankings.items():
        first = np.fromiter(ranking.values(), np.float64)[:DEPTH]
        mean, width = (float(first.mean()), 2 * SPREAD * float(first.std())) if len(first) else (0.0, 0.0)
        for position, score in ranking.items():
            scaled = 0.5 + (score - mean) / width if width else 0.5
            fused[position] = fused.get(position, 0.0) + weights.get(name, 1.0) * max(scaled, 0.0)
    return fused
