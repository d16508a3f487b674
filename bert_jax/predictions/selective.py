"""The precision that can be guaranteed, from how many of the most confident predictions are right.

A level is a share of the most confident predictions. If the true precision were below P at some level and at all wider
levels, the counts of right predictions there would stay below those of a random walk whose steps succeed with
probability P. So P is promised at every level where that walk would hardly get as many right: its chance to do so at
any level is at most RISK. This holds for any P, but not for several values of P at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import bdtr

from bert_jax.core.config import NonNegative, Share, check_ranges
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize

LEVELS = 20  # shares of the most confident predictions for which precision is counted
RISK = 0.05  # that a guaranteed precision does not hold, whichever precision is requested
FINEST = 1000  # proposed precisions are multiples of 1 / FINEST
Precision = float | Mapping[str, float]  # of all predictions, or of those of each named label
MinConfidence = float | Mapping[str, float] | None  # the lowest that is kept, of all or of each named label


@dataclass(frozen=True)
class CoverageLevel:
    """The number of predictions that are at least as probable as `threshold`, and how many of them are right.

    Both numbers are smaller if the predictions of a document tend to be right or wrong together, see `design_effect`.
    """

    threshold: Share
    answers: NonNegative
    right: NonNegative

    def __post_init__(self):
        check_ranges(self, "levels.")
        if self.right > self.answers:
            raise BertJaxError(f"levels.right is {self.right} of {self.answers} answers")


CoverageLevels = tuple[CoverageLevel, ...]


def count_levels(confidence: np.ndarray, correct: np.ndarray, effect: float = 1.0) -> CoverageLevels:
    """Count the most confident 5 %, 10 % and so on of the predictions, `effect` predictions as one.

    Equal confidences are never divided. Confidence alone decides which predictions make a level, not what is right.
    """
    order = np.sort(confidence)[::-1]
    counts = {math.ceil(len(order) * n / LEVELS) for n in range(1, LEVELS + 1)} - {0}
    kept = [
        (threshold, confidence >= threshold) for threshold in sorted({float(order[n - 1]) for n in counts})
    ]
    levels = []
    for threshold, above in kept:
        answers, wrong = int(above.sum() / effect), round(int((above & ~correct).sum()) / effect)
        levels.append(CoverageLevel(threshold, answers, max(answers - wrong, 0)))
    return tuple(levels)


def design_effect(correct: np.ndarray, documents: np.ndarray) -> float:
    """Return how many predictions count as one: 1 if those of a document are independent, up to all of a document if
    they are right or wrong together.

    It is the design effect of a cluster sample: the variance of the documents' sums of errors, over that of independent
    errors. One more document is counted as wrong as a whole: without any error, nothing shows independence.
    """
    _, document_of, sizes = np.unique(documents, return_inverse=True, return_counts=True)
    deviations = correct - np.mean(correct) if len(correct) else np.zeros(0)
    together, alone = np.square(np.bincount(document_of, deviations)).sum(), np.square(deviations).sum()
    largest = np.square(sizes).sum() / max(sizes.sum(), 1)
    return float(max(1.0, (together + largest) / (alone + 1)))


def lowest_threshold(levels: CoverageLevels, precision: float) -> float | None:
    """Return the lowest confidence for which the precision is guaranteed; None if there is none."""
    significance = significance_of_each(tuple(sorted({level.answers for level in levels})), precision)
    return min(
        (lv.threshold for lv in levels if binomial_p_value(lv.answers, lv.right, precision) <= significance),
        default=None,
    )


def highest_precision(levels: CoverageLevels, below: float = 1.0) -> float:
    """Return the highest precision under `below`, to three decimals, that can be guaranteed; 0 if none can."""
    low, high = 0, math.ceil(below * FINEST)
    while high - low > 1:
        middle = (low + high) // 2
        promised = lowest_threshold(levels, middle / FINEST) is not None
        low, high = (middle, high) if promised else (low, middle)
    return low / FINEST


def fewest_answers(precision: float) -> int:
    """Return the least number of answers, all of them right, from which the precision can be guaranteed."""
    return math.ceil(math.log(RISK) / math.log(precision))


def binomial_p_value(answers, right, precision: float):
    """Return the probability of at most this many wrong answers, if `precision` were the true precision."""
    return bdtr(np.subtract(answers, right), answers, 1 - precision)


@cache
def significance_of_each(counts: tuple[int, ...], precision: float) -> float:
    """Return the highest significance for testing each level that keeps the chance to pass at any level at most RISK.

    Bonferroni's RISK / levels would be too strict, because the levels share their most confident predictions.
    """
    steps = [binomial(count, precision) for count in np.diff(counts, prepend=0).tolist()]
    chances = [
        np.cumsum(binomial(count, precision)[: count - int(count * precision) + 1]) for count in counts
    ]
    low, high = RISK / max(len(counts), 1), RISK
    for _ in range(16):
        middle = (low + high) / 2
        few = [int(np.searchsorted(chance, middle, side="right")) for chance in chances]
        low, high = (middle, high) if passing(steps, few) <= RISK else (low, middle)
    return low


def passing(steps: list[np.ndarray], few: list[int]) -> float:
    """Return the probability that the walk has fewer wrong answers than `few` at any level.

    `steps` holds, for each level, the probability of each number of wrong answers beyond those of the level before.
    """
    # The probability of each number of wrong answers in a walk that has not passed yet.
    wrong, total = np.ones(1), 0.0
    for further, fewer in zip(steps, few, strict=True):
        wrong = convolve(wrong, further)[: max(few)]
        total += wrong[:fewer].sum()
        wrong[:fewer] = 0
    return float(total)


def binomial(answers: int, precision: float) -> np.ndarray:
    """Return the probability of each number of wrong answers, from 0 to all."""
    return np.diff(bdtr(np.arange(answers + 1), answers, 1 - precision), prepend=0)


def convolve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    size = len(a) + len(b) - 1
    return np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)


def abstains(score: float, min_confidence: MinConfidence, label: str = "") -> bool:
    """Return whether the model abstains from a prediction with this score, and with this label if it is one."""
    if isinstance(min_confidence, Mapping):
        return score < min_confidence.get(label, 0)
    return min_confidence is not None and score < min_confidence


def abstention_fields(score: float, min_confidence: MinConfidence, label: str = "") -> dict[str, bool]:
    return {} if min_confidence is None else {"abstained": abstains(score, min_confidence, label)}


@dataclass(frozen=True)
class PredictedLabels:
    """Predicted labels: one value for each of them."""

    name: np.ndarray
    confidence: np.ndarray  # the probability that it is right
    correct: np.ndarray
    example: np.ndarray  # the index of its example


NO_LABELS = PredictedLabels(np.zeros(0, str), np.zeros(0), np.zeros(0, bool), np.zeros(0, int))


@dataclass(frozen=True, repr=False)
class LabelLevels:
    """The coverage levels of the predictions of one label."""

    label: str
    examples: NonNegative  # that have the label
    levels: CoverageLevels
    recalls: tuple[Share, ...]  # for each level, the share of these examples that its predictions find

    def __post_init__(self):
        check_ranges(self, "by_label.")
        if len(self.recalls) != len(self.levels):
            raise BertJaxError(f"by_label has {len(self.recalls)} recalls for {len(self.levels)} levels")

    def __repr__(self) -> str:
        recall, examples = max(self.recalls, default=0), pluralize(self.examples, "example")
        return f'<LabelLevels of "{self.label}": {examples}, recall up to {recall:.3f}>'

    def recall_from(self, threshold: float) -> float:
        """Return the recall of the predictions that are at least as probable as one of the levels."""
        return next(
            recall
            for level, recall in zip(self.levels, self.recalls, strict=True)
            if level.threshold == threshold
        )


def count_label_levels(
    predicted: PredictedLabels, documents: np.ndarray, true: Mapping[str, int]
) -> tuple[LabelLevels, ...]:
    """Count the levels of each label; `true` says how many examples have it, `documents` [examples] whose they are."""
    counted = []
    for label, examples in true.items():
        of_label = predicted.name == label
        confidence, correct = predicted.confidence[of_label], predicted.correct[of_label]
        effect = design_effect(correct, documents[predicted.example[of_label]])
        levels = count_levels(confidence, correct, effect)
        hits = [int((correct & (confidence >= level.threshold)).sum()) for level in levels]
        counted.append(LabelLevels(label, examples, levels, tuple(n / max(examples, 1) for n in hits)))
    return tuple(counted)
