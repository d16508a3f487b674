"""Combine rankings whose scores have different scales: the first scores of each are brought to one mean and spread."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

from bert_jax.metrics.retrieval import DEPTH

# Standard deviations between the mean of a ranking's first scores, which becomes 0.5, and what becomes 0 or 1.
SPREAD = 3
Key = TypeVar("Key", bound=Hashable)


def fuse_rankings(
    rankings: Mapping[str, Mapping[Key, float]], weights: Mapping[str, float]
) -> dict[Key, float]:
    """Return, for each key in any ranking, the sum of weight x scaled score over the rankings that contain it. Rankings
    have the best key first.

    >>> fuse_rankings({"keywords": {"a": 9.0, "b": 3.0}, "vectors": {"b": 0.7}}, {"keywords": 3, "vectors": 1})
    {'a': 2.0, 'b': 1.5}
    """
    fused: dict[Key, float] = {}
    for name, ranking in rankings.items():
        first = np.fromiter(ranking.values(), np.float64)[:DEPTH]
        mean, width = (float(first.mean()), 2 * SPREAD * float(first.std())) if len(first) else (0.0, 0.0)
        for key, score in ranking.items():
            scaled = 0.5 + (score - mean) / width if width else 0.5
            fused[key] = fused.get(key, 0.0) + weights.get(name, 1.0) * max(scaled, 0.0)
    return fused
