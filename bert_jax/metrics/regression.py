"""Metrics of numbers."""

from collections.abc import Sequence

import numpy as np

from bert_jax.metrics.score_sums import ScoreSums, check_lengths, safe_ratio


def score_numbers(predicted: Sequence[float], truth: Sequence[float]) -> ScoreSums:
    """Score numbers. Ranks are computed once, among all examples, and kept in a resample: close to ranking it anew."""
    check_lengths(predicted, truth)
    p, t = np.asarray(predicted, np.float64), np.asarray(truth, np.float64)

    def products(x, y):
        # Centred, to lose little precision. If all numbers are equal, exact zeros: they may differ from their mean by a
        # rounding error.
        x, y = (side - side.mean() if np.ptp(side) else np.zeros(len(side)) for side in (x, y))
        return [x, y, x * x, y * y, x * y]

    def scores(sums):
        count = sums[..., -1]

        def correlation(x, y, xx, yy, xy):
            spread = np.maximum((xx - x * x / count) * (yy - y * y / count), 0) ** 0.5
            return np.clip(safe_ratio(xy - x * y / count, spread), -1, 1)

        columns = np.moveaxis(sums, -1, 0)
        return {
            "pearson": correlation(*columns[:5]),
            "spearman": correlation(*columns[5:10]),
            "mean_squared_error": columns[10] / count,
        }

    rows = [*products(p, t), *products(average_ranks(p), average_ranks(t)), (p - t) ** 2, np.ones(len(p))]
    return ScoreSums(np.stack(rows, 1), scores)


def score_correlations(predicted: Sequence[float], truth: Sequence[float]) -> ScoreSums:
    """Score numbers that need not have the scale of the truth."""
    sums = score_numbers(predicted, truth)

    def correlations(rows):
        scores = sums.compute_scores(rows)
        return {name: scores[name] for name in ("pearson", "spearman")}

    return ScoreSums(sums.rows, correlations)


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of the values, from 1. Equal values share the mean of their ranks.

    >>> average_ranks(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[position]
