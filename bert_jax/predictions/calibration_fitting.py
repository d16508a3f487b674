"""Fitting the numbers of a calibration, and cross-fitting: every example is used to fit it, and to measure one that was
fitted without it. Each number has a prior that the model's probabilities are right as they are.

So few examples, or few errors among many examples, hardly change a probability; and without any error, the numbers
stay bounded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import document_keys
from bert_jax.data.randomness import random_key
from bert_jax.predictions.calibration import Calibration, sigmoid, softmax
from bert_jax.predictions.report_data import CalibratedPredictions
from bert_jax.predictions.selective import PredictedLabels, count_label_levels, count_levels, design_effect

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.1, 20.0
# Standard deviations of the normal priors of the factor of logits and of the offset of log odds.
FACTOR, OFFSET = 0.5, 1.0
RARE = 20  # texts with a label, for which the texts and the probabilities weigh the same in its threshold
BINS = 15
FOLDS = 10  # of a cross-fitting
SMALLEST = 1e-6  # the lowest probability in a log loss, which bounds it

ExampleIndices = np.ndarray  # indices of examples
Parts = TypeVar("Parts", CalibratedPredictions, PredictedLabels)
FitCalibration = Callable[[ExampleIndices], Calibration]


def fit_temperature(
    logits: np.ndarray, truth: np.ndarray, expected: tuple[float, float] = (0.0, 0.0)
) -> float:
    """Return the temperature that makes the true classes most likely.

    `expected` (count, share) adds a prior of `count` further examples, a `share` of which is classified correctly.
    """
    logits = np.asarray(logits, np.float64)
    true, top = logits[np.arange(len(truth)), truth], logits.max(-1)
    wrong = (logits.sum(-1) - top) / (logits.shape[-1] - 1)
    more, right = expected[0] / max(len(truth), 1), expected[1]
    wanted = true + more * (right * top + (1 - right) * wrong)

    def slope(factor):
        predicted = (1 + more) * (softmax(factor * logits) * logits).sum(-1)
        return (predicted - wanted).sum() + (factor - 1) / FACTOR**2

    return 1 / increasing_root(slope)


def fit_binary_temperature(logits: np.ndarray, truth: np.ndarray, expected: float = 1.0) -> float:
    """Return the temperature for logits of a binary label. The prior is centred on the `expected` temperature."""
    logits = np.asarray(logits, np.float64)

    def slope(factor):
        return ((sigmoid(factor * logits) - truth) * logits).sum() + (factor - 1 / expected) / FACTOR**2

    return 1 / increasing_root(slope)


def expected_right(classes: int) -> tuple[float, float]:
    """Return the prior of `fit_temperature`, as (count, share): all accuracies from chance to 1 are equally probable.

    It is the beta distribution that has the mean and the variance of these accuracies.
    """
    return (2 * classes + 4) / (classes - 1), (1 + 1 / classes) / 2


def increasing_root(function: Callable[[float], float]) -> float:
    """Return the root of an increasing function, such as the derivative of a convex one, by bisection in the allowed
    range of 1 / temperature."""
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return float(middle)


def fit_logistic(x: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Fit (slope, offset) of the log odds by Newton's method."""
    right = np.asarray(right, np.float64)
    design, expected = np.stack([x, np.ones(len(x))], 1), np.array([1.0, 0.0])
    weight, line = np.array([FACTOR, OFFSET]) ** -2.0, expected
    for _ in range(50):
        p = sigmoid(design @ line)
        curve = design.T @ (design * (p * (1 - p))[:, None]) + np.diag(weight)
        step = np.linalg.solve(curve, design.T @ (p - right) + weight * (line - expected))
        line = line - step * min(1, 2 / max(np.abs(step).max(), 1e-9))
    # A negative slope would reverse the order of the answers.
    return (float(line[0]), float(line[1])) if line[0] > 1 / MAX_TEMPERATURE else (1.0, 0.0)


def label_threshold(likely: np.ndarray, truth: np.ndarray) -> float:
    """Return the probability above which to predict a label.

    The truth is mixed with the probabilities: the fewer texts have the label, the more the probabilities count.
    """
    weight = truth.sum() / (truth.sum() + RARE)
    return best_threshold(likely, weight * truth + (1 - weight) * likely)


def best_threshold(likely: np.ndarray, truth: np.ndarray) -> float:
    """Return the threshold with the best F1, half way between two neighbouring probabilities.

    A truth may also be a probability.
    """
    order = np.argsort(-likely, kind="stable")
    p, y = likely[order], truth[order]
    f1 = 2 * np.cumsum(y) / (np.arange(1, len(y) + 1) + y.sum())
    below = np.append(p[1:], 0.0)
    f1[p == below] = -1  # equal probabilities are on the same side
    best = int(f1.argmax())
    return float((p[best] + below[best]) / 2)


def expected_calibration_error(likely: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """Return the expected calibration error: the mean gap of probability and accuracy, over bins of equal width."""
    if not len(likely):
        return 0.0
    index = np.minimum((np.asarray(likely) * bins).astype(int), bins - 1)
    gaps = np.bincount(index, np.asarray(likely, np.float64) - np.asarray(right, np.float64), bins)
    return float(np.abs(gaps).sum() / len(likely))


def log_losses(probability: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the log loss of each unit, from the probability that it is right, and whether it is."""
    likely = np.where(right, probability, 1 - np.asarray(probability, np.float64))
    return -np.log(np.maximum(likely, SMALLEST))


ApplyCalibration = Callable[[Calibration, ExampleIndices], CalibratedPredictions]


def cross_fit(
    fits: Sequence[FitCalibration],
    apply: ApplyCalibration,
    documents: Sequence[str],
    true: Mapping[str, int] | None = None,
) -> Calibration:
    """Fit a calibration to all examples by the best of several ways: the first, unless a later one has a lower loss.

    In kinds that predict labels, `true` says how many examples have each. Losses, errors and levels are measured by
    cross-validation: on each fold, with a calibration of the others.
    """
    parts, everything = document_folds(documents), np.arange(len(documents))
    # [ways, folds]
    partial = [[fit(np.setdiff1d(everything, part)) for part in parts] for fit in fits]
    applied = [concatenate_parts([*map(apply, calibrations, parts)]) for calibrations in partial]
    best = int(np.argmin([log_losses(way.calibrated, way.right).sum() for way in applied]))
    final = fits[best](everything)
    # Levels order predictions by confidence. The scales of the folds differ and would mix up that order, so all use the
    # final scale, which leaks nothing about what is right. What is predicted is still up to the fold's calibration.
    rescaled = [replace(c, temperatures=final.temperatures, offset=final.offset) for c in partial[best]]
    ordered = concatenate_parts([*map(apply, rescaled, parts)])
    names = np.asarray(documents)
    effect = design_effect(ordered.correct, names[ordered.example])
    return replace(
        final,
        examples=len(documents),
        levels=count_levels(ordered.confidence, ordered.correct, effect),
        by_label=count_label_levels(ordered.labels, names, true or {}),
        error_before=expected_calibration_error(applied[best].uncalibrated, applied[best].right),
        error_after=expected_calibration_error(applied[best].calibrated, applied[best].right),
        loss_before=mean_log_loss(applied[best].uncalibrated, applied[best].right),
        loss_after=mean_log_loss(applied[best].calibrated, applied[best].right),
    )


def mean_log_loss(probability: np.ndarray, right: np.ndarray) -> float:
    return float(log_losses(probability, right).mean()) if len(right) else 0.0


def concatenate_parts(parts: Sequence[Parts]) -> Parts:
    """Concatenate the predictions of all folds, field by field."""
    columns = [[getattr(part, field.name) for part in parts] for field in fields(parts[0])]
    joined: list[Any] = [concatenate_parts(c) if is_dataclass(c[0]) else np.concatenate(c) for c in columns]
    return type(parts[0])(*joined)


def document_folds(documents: Sequence[str]) -> list[ExampleIndices]:
    """Divide the indices of the examples into at most FOLDS parts. No document is in two parts."""
    names, indices = np.unique(np.asarray(documents), return_inverse=True)
    if len(names) < 2:
        raise BertJaxError(
            f"all {len(documents):,} calibration examples belong to one document, so a calibration cannot be checked "
            "on another one; add examples of more documents"
        )
    # A random order that is the same in every run.
    order = np.argsort([random_key("fold", name) for name in names])
    fold = np.argsort(order) % min(FOLDS, len(names))
    return [np.flatnonzero(fold[indices] == n) for n in range(fold.max() + 1)]


def document_names(examples: Sequence[Example]) -> list[str]:
    """Return the name of each example's document, or its text if it has none."""
    return [str(key) for key in document_keys(examples)]
