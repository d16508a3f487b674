"""Would more labels help? Score models of a quarter, half and all of the labels, and forecast the gain from doubling
the labels.

The gap between a score and the best possible one shrinks as 1 / sqrt(labels), so each doubling gains GAIN_RATIO
times as much as the doubling before it. On SST-2, this forecast of a probe's gain is unbiased, from 200, 2,000 and
20,000 labels; to assume that errors fall to 0 as a power of the labels would forecast from a quarter to two thirds too
much. If a score is still near that of the most frequent class (ten classes, 200 labels), the forecast is too low.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.metrics.intervals import bootstrap
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.kind import Outcomes

NUM_PARTS = 4  # equal parts of the labels; the smallest training set is one of them
Z_90 = 1.645  # standard deviations to each side of the middle of an interval
GAIN_RATIO = 0.5**0.5
# The standard deviation of the gain between data sets, as a share of the gain.
GAIN_SPREAD = 0.3


@dataclass(frozen=True)
class LearningCurve:
    metric: str
    labels: list[int]
    scores: list[float]
    gain: float  # expected from doubling the labels
    low: float  # the lower end of its 90 % interval
    high: float

    def describe(self) -> str:
        sizes = ", ".join(
            f"{score:.4f} with {n:,}" for n, score in zip(self.labels, self.scores, strict=True)
        )
        return (
            f"{self.metric} {sizes} examples; {self.labels[-1]:,} more would change it by about {self.gain:+.4f} "
            f"(90 % interval {self.low:+.4f} to {self.high:+.4f})"
        )


def forecast_learning_curve(metric: str, judged: Mapping[int, Sequence[ScoreSums]]) -> LearningCurve:
    """Forecast from models trained on quarters, halves and all of the labels, and scored on the same examples.

    `judged` has lists of four, two and one Sums, by the number of training examples.
    """
    labels, all_sums = sorted(judged), [sums for n in sorted(judged) for sums in judged[n]]
    width = all_sums[0].rows.shape[1]
    counts = [len(judged[n]) for n in labels]
    firsts = np.cumsum([0, *counts])

    def means(sums) -> list[np.ndarray]:
        scores = [
            model.compute_scores(sums[..., i * width : (i + 1) * width])[metric]
            for i, model in enumerate(all_sums)
        ]
        return [np.mean(scores[a:b], axis=0) for a, b in zip(firsts, firsts[1:], strict=False)]

    def gains(sums) -> dict[str, np.ndarray]:
        smallest, *_, largest = means(sums)
        return {metric: forecast_gain(smallest, largest)}

    rows = np.concatenate([model.rows for model in all_sums], 1)
    chance = bootstrap(rows, gains, seed=0)[metric]
    by_draw = draw_variance([[model.scores[metric] for model in judged[n]] for n in labels])
    gain = chance.value
    deviation = (chance.standard_error**2 + by_draw + (GAIN_SPREAD * gain) ** 2) ** 0.5
    scores = [float(mean) for mean in means(rows.sum(0))]
    room = 1 - scores[-1]  # no score is above 1
    middle, wide = min(gain, room), Z_90 * deviation
    return LearningCurve(metric, labels, scores, middle, middle - wide, min(middle + wide, room))


def draw_variance(scores: Sequence[Sequence[float]]) -> float:
    """Estimate how much the score with all labels varies by the choice of labelled examples: its variance.

    A list has the scores of n equal parts; the variance with all labels is theirs divided by n. Lists with more parts
    weigh more.
    """
    several = [part for part in scores if len(part) > 1]
    known = [np.var(part, ddof=1) / len(part) for part in several]
    return float(np.average(known, weights=[len(part) - 1 for part in several]))


def forecast_gain(smallest: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Forecast the gain of the next doubling from the scores with a quarter and with all of the labels, two doublings.

    >>> round(float(forecast_gain(np.array(0.64), np.array(0.91))), 3)
    0.079
    """
    return np.maximum(largest - smallest, 0) * GAIN_RATIO**2 / (1 + GAIN_RATIO)


@dataclass(frozen=True)
class OutOfFoldPredictions:
    """Predictions for the training examples, each by a model that was not trained on it."""

    method: str  # how these models and the final model were trained
    outcomes: Outcomes
    curve: LearningCurve | None = None
