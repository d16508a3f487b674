"""Rankings made one: reciprocal rank fusion, which needs no scores that can be compared."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

CONSTANT = 60  # of Cormack, Clarke and Büttcher (2009): how little the first places count more than the next
Key = TypeVar("Key", bound=Hashable)


def fused(rankings: Mapping[str, Sequence[Key]], weights: Mapping[str, float]) -> dict[Key, float]:
    """The sum over the rankings of weight / (60 + rank), of everything that stands in any of them.

    >>> fused({"keywords": ["a", "b"], "vectors": ["b"]}, {"keywords": 1, "vectors": 2})
    {'a': 0.01639344262295082, 'b': 0.04891591750396616}
    """
    scores: dict[Key, float] = {}
    for name, ranking in rankings.items():
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + weights.get(name, 1.0) / (CONSTANT + rank)
    return scores
