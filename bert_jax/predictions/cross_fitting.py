"""Cross-fitting: every example is used to fit a calibration, and to measure one that was fitted without it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import document_keys
from bert_jax.data.randomness import random_key
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.calibration_fitting import expected_calibration_error
from bert_jax.predictions.label_levels import NO_LABELS, PredictedLabels, count_label_levels
from bert_jax.predictions.selective import count_levels, design_effect

FOLDS = 10
SMALLEST = 1e-6  # the lowest probability in a log loss, which bounds it


@dataclass(frozen=True)
class CalibratedPredictions:
    """Calibrated predictions for some examples that the calibration was not fitted to."""

    # One value for each unit: the probability that it is right, before and after calibration, and whether it is.
    uncalibrated: np.ndarray
    calibrated: np.ndarray
    right: np.ndarray
    # One value for each unit of abstention: the probability that it is right, and whether it is.
    confidence: np.ndarray
    correct: np.ndarray
    example: np.ndarray  # the index of its example
    labels: PredictedLabels = NO_LABELS  # if labels are predicted

    @property
    def loss(self) -> float:
        """The negative log-likelihood of which units are right, after calibration."""
        return float(log_losses(self.calibrated, self.right).sum())


def log_losses(probability: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the log loss of each unit, from the probability that it is right, and whether it is."""
    likely = np.where(right, probability, 1 - np.asarray(probability, np.float64))
    return -np.log(np.maximum(likely, SMALLEST))


ExampleIndices = np.ndarray  # indices of examples
FitCalibration = Callable[[ExampleIndices], Calibration]
ApplyCalibration = Callable[[Calibration, ExampleIndices], CalibratedPredictions]


def cross_fitted(
    fits: Sequence[FitCalibration],
    judge: ApplyCalibration,
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
    judged = [concatenate_predictions(map(judge, calibrations, parts)) for calibrations in partial]
    best = int(np.argmin([way.loss for way in judged]))
    final = fits[best](everything)
    # Levels order predictions by confidence. The scales of the folds differ and would mix up that order, so all use the
    # final scale, which leaks nothing about what is right. What is predicted is still up to the fold's calibration.
    rescaled = [replace(c, temperatures=final.temperatures, offset=final.offset) for c in partial[best]]
    ordered = concatenate_predictions(map(judge, rescaled, parts))
    names = np.asarray(documents)
    effect = design_effect(ordered.correct, names[ordered.example])
    return replace(
        final,
        examples=len(documents),
        levels=count_levels(ordered.confidence, ordered.correct, effect),
        by_label=count_label_levels(ordered.labels, names, true or {}),
        error_before=expected_calibration_error(judged[best].uncalibrated, judged[best].right),
        error_after=expected_calibration_error(judged[best].calibrated, judged[best].right),
        loss_before=mean_log_loss(judged[best].uncalibrated, judged[best].right),
        loss_after=mean_log_loss(judged[best].calibrated, judged[best].right),
    )


def mean_log_loss(probability: np.ndarray, right: np.ndarray) -> float:
    return float(log_losses(probability, right).mean()) if len(right) else 0.0


def concatenate_predictions(parts: Iterable[CalibratedPredictions]) -> CalibratedPredictions:
    """Concatenate the predictions of all folds."""
    parts = list(parts)
    names = ("uncalibrated", "calibrated", "right", "confidence", "correct", "example")
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return CalibratedPredictions(**arrays, labels=PredictedLabels.concatenate(part.labels for part in parts))


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
