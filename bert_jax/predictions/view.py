"""The data that a report shows about the predictions for some examples. It omits what a kind leaves empty."""

from dataclasses import dataclass, field

import numpy as np

CURVES = 5  # classes whose precision and recall are drawn
ENOUGH = 10  # examples of a class, below which its curve says little


def empty_array():
    return field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class ReportExample:
    """An example, as a person reads it."""

    where: str
    text: str
    true: str
    predicted: str
    probability: float
    right: bool


@dataclass(frozen=True)
class PrecisionRecallCurve:
    """The data of a precision-recall curve."""

    probability: np.ndarray
    right: np.ndarray
    wanted: int  # the number of true ones, predicted or not: the denominator of recall

    @property
    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """(recall, precision) at each probability as the threshold, from the highest down."""
        order = np.argsort(-self.probability, kind="stable")
        likely, hits = self.probability[order], np.cumsum(self.right[order])
        last = np.append(likely[1:] != likely[:-1], True)[: len(likely)]  # equal probabilities make one point
        return hits[last] / max(self.wanted, 1), (hits / np.arange(1, len(hits) + 1))[last]

    @property
    def average_precision(self) -> float:
        """
        >>> PrecisionRecallCurve(np.array([0.9, 0.8, 0.7]), np.array([True, False, True]), 2).average_precision
        0.8333333333333333
        """
        recall, precision = self.points
        return float((np.diff(recall, prepend=0) * precision).sum())


def worst_curves(curves: dict[str, PrecisionRecallCurve]) -> dict[str, PrecisionRecallCurve]:
    """Return the CURVES worst by average precision. Those of few examples, which say little, come last."""
    order = sorted(curves, key=lambda name: (curves[name].wanted < ENOUGH, curves[name].average_precision))
    return {name: curves[name] for name in order[:CURVES] if curves[name].wanted}


@dataclass(frozen=True)
class ReportData:
    # One value for each unit: the probability that it is right, before and after calibration, and whether it is.
    before: np.ndarray = empty_array()
    after: np.ndarray = empty_array()
    right: np.ndarray = empty_array()
    # One value for each unit of abstention: the probability that it is right, and whether it is.
    confidence: np.ndarray = empty_array()
    correct: np.ndarray = empty_array()
    curves: dict[str, PrecisionRecallCurve] = field(default_factory=dict)  # precision-recall curves, by name
    counts: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # class -> right, predicted, true
    pairs: list[tuple[str, str]] = field(default_factory=list)  # (true, predicted) class, one for each unit
    numbers: tuple[np.ndarray, np.ndarray] | None = None  # predicted, true
    shown: list[ReportExample] = field(default_factory=list)
