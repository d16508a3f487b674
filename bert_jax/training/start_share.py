"""Choose the share that the parameters of the start have in those that a run keeps, by its validation set.

A validation set of a few dozen examples orders the shares by chance. So a difference on the same examples counts only
if it is larger than its standard error.
"""

from collections.abc import Callable
from typing import NamedTuple

from bert_jax.metrics.intervals import difference_error
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.training.best_evaluation import rank_key

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Kept where the validation set shows no gain: what may be lost grows with the square of the way, a gain as the way.
CAUTIOUS = 0.75
SHARES_LINE = "shares"  # kind of the line about the shares that were tried


class MeasuredShare(NamedTuple):
    """Metrics of the validation set, and what the error of a difference is computed from, if that is known."""

    metrics: dict[str, float]
    sums: ScoreSums | None = None


class ChosenShare(NamedTuple):
    share: float
    metrics: dict[str, float]  # with this share
    # of the line in metrics.jsonl: the metric with each share, and the clearest gain over the start
    values: dict[str, float]


def choose_share(measure: Callable[[float], MeasuredShare], metric: str, given: float) -> ChosenShare:
    """Choose the best share, if any clearly gains over the start, or else a cautious one, unless that clearly loses.

    A given share is chosen unless the start is better; -1: none is given.
    """
    tried = {share: measure(share) for share in (SHARES if given < 0 else (given, 1.0))}
    gains = {share: gain_over(tried[1.0], measured, metric) for share, measured in tried.items() if share < 1}
    gain, error = max(gains.values(), key=lambda pair: pair[0] - pair[1])
    best = max(tried, key=lambda share: rank_key(metric, tried[share].metrics))
    if given < 0 and gain <= error:
        loses = gains[CAUTIOUS][0] < -gains[CAUTIOUS][1]
        best = 1.0 if loses else CAUTIOUS
    values = {f"{metric}_at_{share:g}": measured.metrics[metric] for share, measured in tried.items()}
    return ChosenShare(best, tried[best].metrics, values | {"gain": gain, "standard_error": error})


def gain_over(start: MeasuredShare, measured: MeasuredShare, metric: str) -> tuple[float, float]:
    """Return by how much the metric is better than at the start, and the standard error; 0 if that is not known."""
    gain = rank_key(metric, measured.metrics)[0] - rank_key(metric, start.metrics)[0]
    if start.sums and measured.sums and metric in start.sums.scores:
        return gain, difference_error(metric, start.sums, measured.sums)
    return gain, 0.0
