"""What a report shows of the predictions for some examples. What a kind leaves empty is left out."""

from dataclasses import dataclass, field

import numpy as np


def nothing():
    return field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Shown:
    """An example, as a person reads it."""

    where: str
    text: str
    true: str
    predicted: str
    probability: float
    right: bool


@dataclass(frozen=True)
class View:
    # Of each unit, the probability that it is right, before and after calibration, and whether it is.
    before: np.ndarray = nothing()
    after: np.ndarray = nothing()
    right: np.ndarray = nothing()
    # Of each prediction that could be abstained from: the probability that it is right, and whether it is.
    confidence: np.ndarray = nothing()
    correct: np.ndarray = nothing()
    # Curves of precision by recall: name -> (probability, whether it is right, how many right ones there are).
    curves: dict[str, tuple[np.ndarray, np.ndarray, int]] = field(default_factory=dict)
    counts: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # class -> right, predicted, true
    pairs: list[tuple[str, str]] = field(default_factory=list)  # (true, predicted) class, one for each unit
    numbers: tuple[np.ndarray, np.ndarray] | None = None  # predicted, true
    shown: list[Shown] = field(default_factory=list)
