"""The base of the kinds that predict something about a whole text or a pair, with a classification head."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import Target
from bert_jax.hub.layout import PROBLEM_TYPE, Layout
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.decoder import Decoder
from bert_jax.predictions.example_reader import TextWindows
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.selective import MinConfidence, abstains
from bert_jax.predictions.targets import Targets


@dataclass(frozen=True)
class Label:
    """A label of a text."""

    label: str
    score: float  # the probability of the label
    margin: float = 0.0  # score minus that of the second label or, with several labels, minus its threshold


class WholeTextTargets(Targets):
    @property
    def arrays(self) -> dict[str, Target]:
        return {"labels": self.label_target, "label_weights": Target("float32")}

    @property
    def label_target(self) -> Target:
        return Target("int32")

    def values(self, example: Example, windows: TextWindows) -> list[dict[str, Any]]:
        """Give each window the label of its example; the weights of an example's windows add up to 1."""
        count = len(windows.encodings)
        return [{"labels": self.target_value(example), "label_weights": 1 / count}] * count

    @abstractmethod
    def target_value(self, example: Example) -> Any:
        """Return an example's label as the target of a window."""


class WholeTextDecoder(Decoder):
    """`raw` is the mean of the windows' logits, [labels]."""

    def combine_windows(self, text, windows: TextWindows, logits: Sequence) -> Any:
        return np.mean(logits, axis=0)

    def predicted_value(self, raw, calibration: Calibration) -> Any:
        """Return the prediction for `Classifier.predict`."""
        return self.predict(raw, calibration)

    def label_scores(self, raw, calibration: Calibration) -> np.ndarray:
        """Return a score for each label, [labels]: its probability, if it has one."""
        return self.probabilities(raw, calibration)

    def gather_values(self, values: list) -> Any:
        """Return the predictions of a list of texts, for `Classifier.predict`."""
        return values

    def keep_confident(self, result, confidence: float, min_confidence: MinConfidence) -> Any:
        """Return what the model does not abstain from; None if that is nothing."""
        return None if abstains(confidence, min_confidence) else result

    def require_labels(self, what: str) -> None:
        """Refuse a kind whose predictions are no labels."""


class WholeTextKind(Kind):
    heads: ClassVar[tuple[str, ...]] = (
        "classify",
        "classify_mean",
        "classify_cls",
        "compare_mean",
        "compare_cls",
    )
    problem_type: ClassVar[str] = ""  # Hugging Face's problem_type

    @staticmethod
    def read_problem_type(layout: Layout) -> str:
        return layout.hf_config.get(PROBLEM_TYPE) or ""

    @property
    def hf_config_keys(self) -> dict[str, Any]:
        return {PROBLEM_TYPE: self.problem_type} if self.problem_type else super().hf_config_keys


def require_distillable(kind: Kind, model) -> WholeTextKind:
    """Return the kind if another model can learn its logits for whole texts; refuse it otherwise."""
    if not isinstance(kind, WholeTextKind) or kind.link is None:
        raise BertJaxError(f"{model} predicts {kind.name}; a classifier of texts is needed")
    return kind
