"""The data that a report shows about the predictions for some examples. It omits what a kind leaves empty."""

from dataclasses import dataclass, field

import numpy as np

from bert_jax.data.examples.example import Example
from bert_jax.predictions.selective import NO_LABELS, PredictedLabels


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
class CalibratedPredictions:
    # One value for each unit: the probability that it is right, before and after calibration, and whether it is.
    uncalibrated: np.ndarray = empty_array()
    calibrated: np.ndarray = empty_array()
    right: np.ndarray = empty_array()
    # One value for each unit of abstention: the probability that it is right, and whether it is.
    confidence: np.ndarray = empty_array()
    correct: np.ndarray = empty_array()
    example: np.ndarray = empty_array()  # the index of its example
    labels: PredictedLabels = NO_LABELS  # if labels are predicted


@dataclass(frozen=True)
class ReportData(CalibratedPredictions):
    counts: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # class -> right, predicted, true
    pairs: list[tuple[str, str]] = field(default_factory=list)  # (true, predicted) class, one for each unit
    numbers: tuple[np.ndarray, np.ndarray] | None = None  # predicted, true
    examples: list[ReportExample] = field(default_factory=list)


@dataclass(frozen=True)
class LabelError:
    """A label that is probably wrong: a model that was not trained on it finds it improbable, and predicts another.

    Errors are ordered by the probability of the label itself. Comparing it with the mean of its class, or with the
    probability of the predicted label, found fewer labels that had been flipped on purpose, if there are many classes
    or tags.
    """

    example: Example
    label: str  # the label of the text, or the most doubtful of its labels or of its words' tags
    predicted: str
    error_score: float  # the higher, the more likely the label is wrong
    probability: float | None = None  # the probability of the label; None for a number
