"""The base of the decoders: they turn the logits of a text's windows into predictions, and calibrate these.

A decoder never runs a model.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.example_reader import TextWindows
from bert_jax.predictions.selective import MinConfidence, Precision


@dataclass(frozen=True)
class Decoder(ABC):
    """`raw` is a model's output for a text before calibration, in a form that the decoder chooses."""

    name: str = ""  # of the kind
    labels: tuple[str, ...] = ()

    @abstractmethod
    def combine_windows(self, text, windows: TextWindows, logits: Sequence) -> Any:
        """Combine the logits of a text's windows into one raw output."""

    @abstractmethod
    def predict(self, raw, calibration: Calibration) -> Any:
        """Return the prediction for a raw output, in a form that can be compared with the truth."""

    @abstractmethod
    def result_and_confidence(self, raw, calibration: Calibration) -> tuple[Any, float]:
        """Return the value for the Python API, and the probability that it is right as a whole."""

    def confidence(self, raw, calibration: Calibration) -> float:
        """Return the probability that the prediction is right, without the prediction."""
        return self.result_and_confidence(raw, calibration)[1]

    def uncertainty(self, raw, calibration: Calibration) -> float:
        """Return how unsure the model is, 0 if it is sure. It decides which texts to label next."""
        return 1 - self.confidence(raw, calibration)

    def probabilities(self, raw, calibration: Calibration) -> Any:
        """Return the probability of every label, [labels]. By default, refuse: labels have no probability."""
        raise BertJaxError(f'predictions of the kind "{self.name}" have no probability for each label')

    @abstractmethod
    def to_record(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        """Return the object that `predict` writes.

        With `min_confidence`, it also says whether the model abstains, as it does below that probability; of several
        labels or spans of a text, it says so of each if each label has its own.
        """

    def to_cells(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        """Return the cells that `predict` writes to a table. All rows have the same columns."""
        return self.to_record(raw, calibration, min_confidence)

    def calibrate(self, outcomes) -> Calibration:
        """Fit a calibration to `Outcomes`. Training keeps examples for it only if a decoder overrides this method."""
        return UNCALIBRATED

    def confidence_threshold(self, calibration: Calibration, precision: Precision) -> MinConfidence:
        """Return the lowest confidence for which the precision is guaranteed, or that of each label which has one."""
        if not isinstance(precision, Mapping):
            return calibration.confidence_threshold(precision)
        if not precision:
            raise BertJaxError(
                'a precision names no label; give one of them at least, such as {"spam": 0.99}'
            )
        return {label: calibration.label_threshold(label, share) for label, share in precision.items()}


def round_floats(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in result.items()}
