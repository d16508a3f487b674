"""The precision that can be promised, from how many of the most confident predictions are right.

A precision below P at some level, and at all wider ones, means that their counts of right predictions stay below those
of a random walk whose steps succeed with probability P. The promise holds for every level where that walk would be no
higher but for a risk of RISK at all levels together, whichever P is asked for; not for several P at once.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import bdtr

from bert_jax.config import NotNegative, Share, check_ranges
from bert_jax.errors import BertJaxError

LEVELS = 20  # shares of the most confident predictions for which precision is counted
RISK = 0.05  # that a promised precision does not hold, whichever is asked for
FINEST = 1000  # a precision that is proposed has three decimals


@dataclass(frozen=True)
class Level:
    """How many predictions were at least as probable as `threshold`, and how many of them were right.

    Those of one document count as fewer, as far as they are right or wrong together.
    """

    threshold: Share
    answers: NotNegative
    right: NotNegative

    def __post_init__(self):
        check_ranges(self, "levels.")
        if self.right > self.answers:
            raise BertJaxError(f"levels.right is {self.right} of {self.answers} answers")


Levels = tuple[Level, ...]


def count_levels(confidence: np.ndarray, correct: np.ndarray, alike: float = 1.0) -> Levels:
    """Of the most confident 5 %, 10 % and so on to all; equal ones are counted together, `alike` of them as one.

    The counts depend on the confidence alone, which tells nothing of how many are right.
    """
    order = np.sort(confidence)[::-1]
    counts = {math.ceil(len(order) * n / LEVELS) for n in range(1, LEVELS + 1)} - {0}
    kept = [
        (threshold, confidence >= threshold) for threshold in sorted({float(order[n - 1]) for n in counts})
    ]
    levels = []
    for threshold, above in kept:
        answers, wrong = int(above.sum() / alike), round(int((above & ~correct).sum()) / alike)
        levels.append(Level(threshold, answers, max(answers - wrong, 0)))
    return tuple(levels)


def dependence(correct: np.ndarray, documents: np.ndarray) -> float:
    """How many predictions of a document count as one, from 1 to all of them where they are right or wrong together.

    It is the variance of the documents' sums of errors over that of independent ones, the design effect of a cluster
    sample. As if one more document was wrong as a whole: without an error nothing shows what is independent.
    """
    _, document_of, sizes = np.unique(documents, return_inverse=True, return_counts=True)
    apart = correct - np.mean(correct) if len(correct) else np.zeros(0)
    together, alone = np.square(np.bincount(document_of, apart)).sum(), np.square(apart).sum()
    largest = np.square(sizes).sum() / max(sizes.sum(), 1)
    return float(max(1.0, (together + largest) / (alone + 1)))


def lowest_threshold(levels: Levels, precision: float) -> float | None:
    """The lowest probability above which the precision is promised; None where there is none."""
    significance = significance_of_each(tuple(sorted({level.answers for level in levels})), precision)
    return min(
        (lv.threshold for lv in levels if chance(lv.answers, lv.right, precision) <= significance),
        default=None,
    )


def highest_precision(levels: Levels, below: float = 1.0) -> float:
    """The highest below that one, to three decimals, for which there is a threshold; 0 where there is none."""
    low, high = 0, math.ceil(below * FINEST)
    while high - low > 1:
        middle = (low + high) // 2
        promised = lowest_threshold(levels, middle / FINEST) is not None
        low, high = (middle, high) if promised else (low, middle)
    return low / FINEST


def fewest_answers(precision: float) -> int:
    """How many, all of them right, it takes at least to promise a precision."""
    return math.ceil(math.log(RISK) / math.log(precision))


def chance(answers, right, precision: float):
    """The probability of so few wrong answers, or fewer, if the true precision were `precision`."""
    return bdtr(np.subtract(answers, right), answers, 1 - precision)


@cache
def significance_of_each(counts: tuple[int, ...], precision: float) -> float:
    """The highest at which every level may be tested, so that the walk passes at none but for a risk of RISK.

    Tested apart, each would get RISK / levels; but the levels share their most confident predictions.
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
    """The probability that the walk has at any level fewer wrong answers than `few`.

    `steps` are the probabilities of each number of further wrong answers.
    """
    wrong, total = np.ones(1), 0.0  # the probability of each number, among walks that never passed
    for further, fewer in zip(steps, few, strict=True):
        wrong = convolved(wrong, further)[: max(few)]
        total += wrong[:fewer].sum()
        wrong[:fewer] = 0
    return float(total)


def binomial(answers: int, precision: float) -> np.ndarray:
    """The probability of each number of wrong answers."""
    return np.diff(bdtr(np.arange(answers + 1), answers, 1 - precision), prepend=0)


def convolved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    size = len(a) + len(b) - 1
    return np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)
