"""How far a model's predictions can be trusted, as `calibration.json` of its directory holds it.

Temperatures make probabilities match the observed accuracy, thresholds decide which of several labels are predicted,
and levels give the probability above which a precision can be promised. The order of a text's classes never changes.
Without the file probabilities stay uncalibrated.
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from bert_jax import hashes
from bert_jax.config import NotNegative, Range, Share, check_number, check_ranges
from bert_jax.errors import BertJaxError
from bert_jax.files import read_json, write_json
from bert_jax.predictions.promise import Level, fewest_answers, highest_precision, lowest_threshold

FILE = "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """The default changes nothing."""

    kind: str = ""  # of the predictions; "" where nothing was learnt
    labels: tuple[str, ...] = ()
    temperatures: Annotated[tuple[float, ...], Range(1e-6, 1e6)] = ()  # one, or one for each label
    # Of several labels: the probability above which each is predicted.
    thresholds: Annotated[tuple[float, ...], Range(0, 1)] = ()
    offset: float = 0.0  # of the log odds that an answer is right
    missing: float = 0.0  # log odds of no answer, against the best one, above which there is none
    levels: tuple[Level, ...] = ()
    examples: NotNegative = 0
    error_before: Share = 0.0  # the expected calibration error, of examples that nothing was fitted to
    error_after: Share = 0.0
    # The mean log loss of the same examples, which decides; 0 where an earlier version measured none.
    loss_before: Annotated[float, Range(0)] = 0.0
    loss_after: Annotated[float, Range(0)] = 0.0

    def __post_init__(self):
        check_ranges(self)
        counts = {"temperatures": (1, len(self.labels)), "thresholds": (len(self.labels),)}
        for name, allowed in counts.items():
            if (count := len(getattr(self, name))) not in (0, *allowed):
                raise BertJaxError(f"it has {count} {name} for {len(self.labels)} labels")

    @property
    def learnt(self) -> bool:
        return bool(self.kind)

    @property
    def keeps_probabilities(self) -> bool:
        """Whether they stay as the model gives them."""
        return not self.offset and all(temperature == 1 for temperature in self.temperatures)

    def probabilities(self, logits: np.ndarray, multi_label: bool = False) -> np.ndarray:
        """Of each class, or of each of several labels at once, from logits [..., labels]."""
        if self.temperatures:
            logits = logits / np.asarray(self.temperatures, np.float32)
        return sigmoid(logits) if multi_label else softmax(logits)

    def decision_thresholds(self, count: int) -> np.ndarray:
        """Of so many labels at once, the probability above which each is predicted."""
        return np.asarray(self.thresholds or (0.5,) * count)

    def floor(self, precision: float) -> float:
        """The lowest probability above which predictions are right this often, but for a risk of promise.RISK."""
        check_number(precision, "the precision", allowed=Range(0, 1, above=True, below=True))
        if not self.learnt:
            raise BertJaxError(
                "this model was not calibrated, so no precision can be promised; `bert-jax train` calibrates a model "
                "unless data.calibration_share is 0 or too few examples are left"
            )
        threshold = lowest_threshold(self.levels, precision)
        if threshold is None:
            raise BertJaxError(
                f"a precision of {precision:g} cannot be promised from {self.shortfall(precision)}"
            )
        return threshold

    def shortfall(self, precision: float) -> str:
        """Why there is no threshold for that precision, and what can be done."""
        answers = max((level.answers for level in self.levels), default=0)
        reason = f"{self.examples:,} calibration examples"
        if answers < (fewest := fewest_answers(precision)):
            reason += f" ({answers:,} predictions; it takes {fewest:,} at least)"
        best = highest_precision(self.levels, precision)
        promised = f"at most {best:g} can: ask for that, or" if best else "no lower one can either:"
        return (
            f"{reason}; {promised} calibrate with more examples (label more or, where no folds are trained, raise "
            "--config.data.calibration_share)"
        )


NONE = Calibration()


def save(directory, calibration: Calibration) -> None:
    """Write the file, or remove an old one where there is nothing to write."""
    path = Path(directory) / FILE
    if calibration.learnt:
        write_json(path, asdict(calibration), indent=1)
    else:
        path.unlink(missing_ok=True)
    hashes.update(path.parent, FILE)


def read(directory, labels: Sequence[str]) -> Calibration:
    """The calibration of a model with these labels; one for other labels is left out with a warning."""
    path = Path(directory) / FILE
    if not path.is_file():
        return NONE
    calibration = read_json(path, Calibration, "delete it, or train again")
    if calibration.labels and calibration.labels != tuple(labels):
        warnings.warn(f"{path} is for other labels than the model's and is ignored; delete it", stacklevel=3)
        return NONE
    return calibration


def softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


def log_odds(p: np.ndarray) -> np.ndarray:
    p = np.clip(np.asarray(p, np.float64), 1e-6, 1 - 1e-6)
    return np.log(p) - np.log1p(-p)
