"""Combine rankings by reciprocal rank fusion, which does not need comparable scores."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

RRF_CONSTANT = 60  # from Cormack, Clarke and Büttcher (2009); a larger value favours the first ranks less
Key = TypeVar("Key", bound=Hashable)


def fuse_rankings(rankings: Mapping[str, Sequence[Key]], weights: Mapping[str, float]) -> dict[Key, float]:
    """Return, for each key in any ranking, the sum of weight / (60 + rank) over the rankings that contain it.

    >>> fuse_rankings({"keywords": ["a", "b"], "vectors": ["b"]}, {"keywords": 1, "vectors": 2})
    {'a': 0.01639344262295082, 'b': 0.04891591750396616}
    """
    scores: dict[Key, float] = {}
    for name, ranking in rankings.items():
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + weights.get(name, 1.0) / (RRF_CONSTANT + rank)
    return scores
