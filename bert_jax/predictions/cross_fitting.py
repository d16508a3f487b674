"""Cross-fitting: every example fits a calibration, and every example measures one that was fitted without it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import document_of
from bert_jax.data.randomness import key_of
from bert_jax.errors import BertJaxError
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.fitting import error
from bert_jax.predictions.promise import count_levels, dependence

FOLDS = 10
SMALLEST = 1e-6  # probability that is believed of what happened


@dataclass(frozen=True)
class Judged:
    """Predictions for some examples by a calibration that was not fitted to them."""

    # Of each unit, the probability that it is right, before and after calibration, and whether it is.
    before: np.ndarray
    after: np.ndarray
    right: np.ndarray
    # Of each prediction that could be abstained from: the probability that it is right, and whether it is.
    confidence: np.ndarray
    correct: np.ndarray
    example: np.ndarray  # its number

    @property
    def loss(self) -> float:
        """The negative log-likelihood of what was right."""
        return float(log_losses(self.after, self.right).sum())


def log_losses(probability: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Of each unit, the negative logarithm of the probability of what happened."""
    likely = np.where(right, probability, 1 - np.asarray(probability, np.float64))
    return -np.log(np.maximum(likely, SMALLEST))


Rows = np.ndarray  # numbers of examples
Fit = Callable[[Rows], Calibration]
Judge = Callable[[Calibration, Rows], Judged]


def cross_fitted(fits: Sequence[Fit], judge: Judge, documents: Sequence[str]) -> Calibration:
    """The calibration by the best of several ways to fit: the first, unless a later one makes the truth more likely.

    It is fitted to all examples. What it shows is measured on each fold with a calibration of the others.
    """
    parts, everything = folds(documents), np.arange(len(documents))
    # [ways, folds]
    partial = [[fit(np.setdiff1d(everything, part)) for part in parts] for fit in fits]
    judged = [joined(map(judge, calibrations, parts)) for calibrations in partial]
    best = int(np.argmin([way.loss for way in judged]))
    final = fits[best](everything)
    # The order by confidence is that of the final scale, which tells nothing of what is right: scales that differ
    # between the folds would mix it up. What is predicted stays that of the fold.
    rescaled = [replace(c, temperatures=final.temperatures, offset=final.offset) for c in partial[best]]
    ordered = joined(map(judge, rescaled, parts))
    alike = dependence(ordered.correct, np.asarray(documents)[ordered.example])
    return replace(
        final,
        examples=len(documents),
        levels=count_levels(ordered.confidence, ordered.correct, alike),
        error_before=error(judged[best].before, judged[best].right),
        error_after=error(judged[best].after, judged[best].right),
        loss_before=mean_log_loss(judged[best].before, judged[best].right),
        loss_after=mean_log_loss(judged[best].after, judged[best].right),
    )


def mean_log_loss(probability: np.ndarray, right: np.ndarray) -> float:
    return float(log_losses(probability, right).mean()) if len(right) else 0.0


def joined(parts: Iterable[Judged]) -> Judged:
    """What all folds show together."""
    parts = list(parts)
    return Judged(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Judged))
    )


def folds(documents: Sequence[str]) -> list[Rows]:
    """The numbers of the examples in at most FOLDS parts; no document is in two of them."""
    names, document_of = np.unique(np.asarray(documents), return_inverse=True)
    if len(names) < 2:
        raise BertJaxError(
            f"all {len(documents):,} calibration examples belong to one document, and none may judge what it was "
            "fitted to; give examples of more documents"
        )
    # In an order that tells nothing of them, and is the same in every run.
    order = np.argsort([key_of("fold", name) for name in names])
    fold = np.argsort(order) % min(FOLDS, len(names))
    return [np.flatnonzero(fold[document_of] == n) for n in range(fold.max() + 1)]


def documents_of(examples: Sequence[Example]) -> list[str]:
    """Of each example its document, or its text where it has none."""
    return [str(document_of(example)) for example in examples]
