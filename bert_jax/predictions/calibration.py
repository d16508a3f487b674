"""How far a model's predictions can be trusted. `calibration.json` in the model's directory stores it.

Temperatures make probabilities match the observed accuracy, thresholds decide which of several labels are predicted,
and levels give the lowest probability for which a precision can be guaranteed. The order of a text's classes never
changes. Without the file, probabilities stay uncalibrated.
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from bert_jax.core.config import NonNegative, Range, Share, check_number, check_ranges
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.files import read_json, write_json
from bert_jax.core.terminal import pluralize
from bert_jax.predictions.selective import (
    CoverageLevels,
    LabelLevels,
    fewest_answers,
    highest_precision,
    lowest_threshold,
)

FILE = "calibration.json"


@dataclass(frozen=True, repr=False)
class Calibration:
    """The numbers of a calibration. The default changes no probability."""

    kind: str = ""  # the kind of the predictions; "": not calibrated
    labels: tuple[str, ...] = ()
    temperatures: Annotated[tuple[float, ...], Range(1e-6, 1e6)] = ()  # one for all labels, or one for each
    # If a text can have several labels: the probability above which each label is predicted.
    thresholds: Annotated[tuple[float, ...], Range(0, 1)] = ()
    offset: float = 0.0  # added to the log odds that an answer is right
    missing: float = 0.0  # log odds of no answer over the best answer, above which there is no answer
    levels: CoverageLevels = ()  # of all predictions
    by_label: tuple[LabelLevels, ...] = ()  # of the predictions of each label
    examples: NonNegative = 0
    # The expected calibration error, on examples that the calibration was not fitted to.
    error_before: Share = 0.0
    error_after: Share = 0.0
    # The mean log loss on the same examples, which decides between ways to calibrate.
    loss_before: Annotated[float, Range(0)] = 0.0
    loss_after: Annotated[float, Range(0)] = 0.0

    def __post_init__(self):
        check_ranges(self)
        counts = {"temperatures": (1, len(self.labels)), "thresholds": (len(self.labels),)}
        for name, allowed in counts.items():
            if (count := len(getattr(self, name))) not in (0, *allowed):
                raise BertJaxError(f"it has {count} {name} for {len(self.labels)} labels")

    def __repr__(self) -> str:
        if not self.is_fitted:
            return "<Calibration: none>"
        return (
            f"<Calibration of {self.kind} on {pluralize(self.examples, 'example')}: {self.describe_errors()}>"
        )

    @property
    def is_fitted(self) -> bool:
        return bool(self.kind)

    @property
    def keeps_probabilities(self) -> bool:
        """Whether probabilities stay as the model computes them."""
        return not self.offset and all(temperature == 1 for temperature in self.temperatures)

    def describe(self) -> str:
        """Describe in one line what the calibration did."""
        if self.keeps_probabilities:
            error = f"expected calibration error {self.error_before:.4f}"
            fit = f"probabilities stay as they are, because rescaling did not improve them; {error}"
        else:
            fit = ", ".join(filter(None, (self.describe_temperature(), self.describe_errors())))
        best = highest_precision(self.levels)
        promise = f"--min-precision can be {best:g} at most" if best else "no precision can be guaranteed"
        return f"calibrated on {self.examples:,} examples: {fit}; {promise}"

    def describe_temperature(self) -> str:
        """Describe the temperature; "" if there is none, or an offset too, without which it means little."""
        values = self.temperatures
        if not values or self.offset:
            return ""
        if len(values) == 1:
            return f"temperature {values[0]:.3g}"
        return f"temperatures from {min(values):.3g} to {max(values):.3g} by label"

    def describe_errors(self) -> str:
        """Say how far probabilities were from what was observed, on examples that the calibration was not fitted to."""
        return (
            f"log loss {self.loss_before:.4f} before, {self.loss_after:.4f} after; expected calibration error "
            f"{self.error_before:.4f} before, {self.error_after:.4f} after"
        )

    def probabilities(self, logits: np.ndarray, multi_label: bool = False) -> np.ndarray:
        """Return the probabilities for logits [..., labels]: of classes or, if `multi_label`, of independent labels."""
        if self.temperatures:
            logits = logits / np.asarray(self.temperatures, np.float32)
        return sigmoid(logits) if multi_label else softmax(logits)

    def decision_thresholds(self, count: int) -> np.ndarray:
        """Return the probability [count] above which each of several labels is predicted."""
        return np.asarray(self.thresholds or (0.5,) * count)

    def confidence_threshold(self, precision: float) -> float:
        """Return the lowest confidence for which the precision is guaranteed, but for a risk of selective.RISK."""
        self.require_fitted()
        return find_threshold(self.levels, precision, "", pluralize(self.examples, "calibration example"))

    def label_threshold(self, label: str, precision: float) -> float:
        """Return the lowest probability of a label from which the precision of its predictions is guaranteed, with the
        same risk."""
        known = self.levels_of(label)
        examples = f"{pluralize(known.examples, 'calibration example')} of it"
        return find_threshold(known.levels, precision, f' for "{label}"', examples)

    def describe_label_threshold(self, label: str, precision: float) -> str:
        """Say from which probability on a label is predicted for this precision, and what that costs."""
        threshold, known = self.label_threshold(label, precision), self.levels_of(label)
        return (
            f'"{label}": a precision of {precision:g} is guaranteed from a probability of {threshold:.4f} on, which '
            f"finds {known.recall_from(threshold):.1%} of its {pluralize(known.examples, 'calibration example')}"
        )

    def levels_of(self, label: str) -> LabelLevels:
        self.require_fitted()
        by_name = {known.label: known for known in self.by_label}
        if not by_name:
            raise BertJaxError(
                "this model's calibration counts no single labels; give one precision for all predictions, or train "
                "the model again if it predicts labels"
            )
        check_name(label, by_name, "label")
        return by_name[label]

    def require_fitted(self) -> None:
        if not self.is_fitted:
            raise BertJaxError(
                "this model is not calibrated, so no precision can be guaranteed; `bert-jax train` calibrates a model "
                "unless data.calibration_ratio is 0 or too few examples are left"
            )


UNCALIBRATED = Calibration()


def find_threshold(levels: CoverageLevels, precision: float, what: str, examples: str) -> float:
    """Return the lowest confidence for which the precision is guaranteed; refuse a precision that cannot be. `what` and
    `examples` describe the predictions, and what they were counted on."""
    check_number(
        precision, "the precision", allowed=Range(0, 1, exclusive_minimum=True, exclusive_maximum=True)
    )
    threshold = lowest_threshold(levels, precision)
    if threshold is None:
        shortfall = explain_shortfall(levels, precision, examples)
        raise BertJaxError(f"a precision of {precision:g}{what} cannot be guaranteed with {shortfall}")
    return threshold


def explain_shortfall(levels: CoverageLevels, precision: float, examples: str) -> str:
    """Return why no threshold reaches the precision, and what can be done about it."""
    answers, reason = max((level.answers for level in levels), default=0), examples
    if answers < (fewest := fewest_answers(precision)):
        reason += f" ({pluralize(answers, 'prediction')}; at least {fewest:,} are needed)"
    best = highest_precision(levels, precision)
    reachable = (
        f"at most {best:g} is reachable: ask for that, or"
        if best
        else "no lower precision is reachable either:"
    )
    return (
        f"{reason}; {reachable} calibrate with more examples (label more, give the folds more time by "
        "--config.minutes=M or, without folds, raise --config.data.calibration_ratio)"
    )


def save_calibration(directory, calibration: Calibration) -> None:
    if calibration.is_fitted:
        write_json(Path(directory) / FILE, asdict(calibration), indent=1)


def read_calibration(directory, labels: Sequence[str]) -> Calibration:
    """Read the calibration of a model with these labels. Ignore one for other labels, with a warning."""
    path = Path(directory) / FILE
    if not path.is_file():
        return UNCALIBRATED
    calibration = read_json(path, Calibration, "delete it, or train again")
    if calibration.labels and calibration.labels != tuple(labels):
        warnings.warn(f"{path} is for other labels than the model's and is ignored; delete it", stacklevel=3)
        return UNCALIBRATED
    return calibration


def softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


def log_odds(p: np.ndarray) -> np.ndarray:
    p = np.clip(np.asarray(p, np.float64), 1e-6, 1 - 1e-6)
    return np.log(p) - np.log1p(-p)
