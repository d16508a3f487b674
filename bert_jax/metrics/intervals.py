"""Bootstrap intervals of a model's scores, and of the differences between two models' scores."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bert_jax.metrics.score_sums import ScoreSums

RESAMPLES = 2000
CHUNK = 100  # resamples computed at once
EDGES = 0.025, 0.975  # quantiles of the resamples
DEVIATIONS = 1.96  # standard errors from the middle to these edges


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    @property
    def standard_error(self) -> float:
        return (self.high - self.low) / (2 * DEVIATIONS)


def bootstrap_intervals(given: ScoreSums, seed: int = 0) -> dict[str, Interval]:
    by_score = bootstrap(given.rows, given.compute_scores, seed)
    return {name: widen_perfect(resampled, len(given.rows)) for name, resampled in by_score.items()}


def widen_perfect(interval: Interval, examples: int) -> Interval:
    """Return Wilson's interval if all examples are right: resamples never differ, but other examples may be wrong."""
    if not interval.low == interval.value == interval.high == 1:
        return interval
    low, _ = wilson_interval(examples, examples)
    return Interval(1.0, float(low), 1.0)


def difference_intervals(a: ScoreSums, b: ScoreSums, seed: int = 0) -> dict[str, Interval]:
    """Return the interval of b's minus a's value for each score; both use the same resamples of the examples."""
    width = a.rows.shape[1]

    def score_differences(sums):
        first, second = a.compute_scores(sums[:, :width]), b.compute_scores(sums[:, width:])
        return {name: second[name] - first[name] for name in first}

    return bootstrap(np.concatenate([a.rows, b.rows], 1), score_differences, seed)


def difference_error(name: str, a: ScoreSums, b: ScoreSums) -> float:
    """Return the standard error of the difference between two models' scores on the same examples, by the jackknife:
    it costs little, also with many examples."""

    if len(a.rows) == 1:
        return 0.0
    first, second = (sums.compute_scores(sums.rows.sum(0) - sums.rows)[name] for sums in (a, b))
    return float(((len(a.rows) - 1) * (second - first).var()) ** 0.5)  # each without one example


def bootstrap(rows: np.ndarray, scores: Callable, seed: int) -> dict[str, Interval]:
    distinct, times = np.unique(rows, axis=0, return_counts=True)
    distinct = distinct.astype(float)  # matrix products of floats are fast
    total = times @ distinct
    whole, drawn = scores(total[None]), scores(draw_resamples(distinct, times, seed))
    shortened = scores(total - distinct) if len(rows) > 1 else whole  # each without one example
    return {
        name: make_interval(float(value[0]), drawn[name], shortened[name], times)
        for name, value in whole.items()
    }


def make_interval(value: float, drawn: np.ndarray, shortened: np.ndarray, times: np.ndarray) -> Interval:
    """Combine the shape of the bootstrap resamples with the bias and the width of the jackknife.

    f1_macro is biased if classes have few examples. In a resample, which lacks some of these, it is biased twice: the
    resamples' quantiles alone missed the true score of 150 classes in more than half of all simulations. With a few
    rare classes among large ones, the interval is too narrow (prediction_page.py says so). No other method that was
    simulated has good coverage in both cases: quantiles, with absent classes as 0 or left out, or a jackknife of fixed
    classes.
    """
    count = times.sum()
    mean = np.average(shortened, weights=times)
    bias = (count - 1) * (mean - value)
    error = ((count - 1) / count * (times @ (shortened - mean) ** 2)) ** 0.5
    shape = np.quantile(drawn, EDGES) - drawn.mean()
    if spread := drawn.std():
        shape = shape * error / spread
    low, high = map(float, value - bias + shape)
    # A share is never below 0 or above 1.
    if drawn.min() >= 0:
        low = max(low, 0.0)
    if drawn.max() <= 1:
        high = min(high, 1.0)
    return Interval(value, low, high)


def draw_resamples(distinct: np.ndarray, times: np.ndarray, seed: int) -> np.ndarray:
    """Return the sums of each resample, [RESAMPLES, sums]; a resample is drawn as a count per distinct row."""
    rng, total = np.random.default_rng(seed), times.sum()
    drawn = (rng.multinomial(total, times / total, CHUNK) @ distinct for _ in range(RESAMPLES // CHUNK))
    return np.concatenate(list(drawn))


def wilson_interval(right, count) -> tuple[np.ndarray, np.ndarray]:
    """Return (low, high) of the 95 % interval of shares; `low` is below 1 even if all are right.

    >>> [round(float(edge), 3) for edge in wilson_interval(10, 10)]
    [0.722, 1.0]
    """
    right, count = np.asarray(right, float), np.asarray(count, float)
    z, share = 1.96, right / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return middle - half, middle + half
