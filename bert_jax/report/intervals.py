"""How far chance moves a score: bootstrap intervals, of one model's scores and of the difference of two."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bert_jax.metrics import Sums

RESAMPLES = 2000
CHUNK = 100
SHARE = 0.95  # of the resamples that an interval holds


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float


def intervals(given: Sums, seed: int = 0) -> dict[str, Interval]:
    return bootstrapped(given.rows, given.scores_of, seed)


def differences(a: Sums, b: Sums, seed: int = 0) -> dict[str, Interval]:
    """Of each score b's less a's: both are judged by the same resamples of the examples."""
    width = a.rows.shape[1]

    def apart(sums):
        first, second = a.scores_of(sums[:, :width]), b.scores_of(sums[:, width:])
        return {name: second[name] - first[name] for name in first}

    return bootstrapped(np.concatenate([a.rows, b.rows], 1), apart, seed)


def bootstrapped(rows: np.ndarray, scores: Callable, seed: int) -> dict[str, Interval]:
    whole, drawn = scores(rows.sum(0, keepdims=True)), scores(resampled(rows, seed))
    edges = (1 - SHARE) / 2, (1 + SHARE) / 2
    return {
        name: Interval(float(value[0]), *map(float, np.quantile(drawn[name], edges)))
        for name, value in whole.items()
    }


def resampled(rows: np.ndarray, seed: int) -> np.ndarray:
    """[RESAMPLES, sums]: a resample is a count per distinct row."""
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    distinct = distinct.astype(float)  # whose product is fast
    rng, total = np.random.default_rng(seed), len(rows)
    drawn = (rng.multinomial(total, counts / total, CHUNK) @ distinct for _ in range(RESAMPLES // CHUNK))
    return np.concatenate(list(drawn))
