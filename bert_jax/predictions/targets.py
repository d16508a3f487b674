"""The base of the targets of a kind: what is true of an example, how it is learnt, and how predictions are scored."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from bert_jax.data.examples.example import Example, check_labels, labels_of
from bert_jax.data.examples.row_packing import Target
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.example_reader import TextWindows

if TYPE_CHECKING:
    from bert_jax.losses.loss import Loss


@dataclass(frozen=True)
class Baseline:
    """The scores of a prediction that ignores the text."""

    name: str  # such as "always the mean"
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Targets(ABC):
    """Predictions and truths are in a form that people read: a label, a set of labels, a number, tags, an answer."""

    one_label: ClassVar[bool] = False  # a unit has one label, so the loss takes class weights and smoothing
    named_labels: ClassVar[bool] = True  # labels in the data are names of the model's labels

    labels: tuple[str, ...] = ()  # these three as in `Kind`
    names: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    def check(self, examples: Sequence[Example]) -> None:
        """Refuse examples with labels that the model does not have."""
        if self.named_labels:
            check_labels(examples, self.labels)

    @abstractmethod
    def truth(self, example: Example) -> Any:
        """Return the label of an example, as the model names it."""

    def counted_labels(self, example: Example) -> Iterable[str]:
        """Return the labels that the report counts for an example."""
        return labels_of(example)

    def count_labels(self, examples: Iterable[Example]) -> Counter[str]:
        """Count how often each label occurs. Return no counts if there is nothing to distinguish, as with
        questions that all have an answer."""
        counts = Counter(label for example in examples for label in self.counted_labels(example))
        return counts if self.labels or len(counts) > 1 else Counter()

    # Training

    @property
    @abstractmethod
    def arrays(self) -> dict[str, Target]:
        """The arrays that training adds to a batch, by name."""

    @abstractmethod
    def values(self, example: Example, windows: TextWindows) -> list[dict[str, Any]]:
        """Return the values of these arrays for each window of an example."""

    @abstractmethod
    def describe(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        """Return the targets of a window as text: that of the whole window, and those of tokens by position."""

    def loss(self, logits, batch: dict, label_weights, smoothing: float = 0.0) -> "Loss":
        """Return the loss that training minimises; by default that of one label for each unit."""
        from bert_jax.losses.loss import cross_entropy

        return cross_entropy(logits, batch["labels"], label_weights, smoothing)

    def batch_metrics(self, logits, batch: dict) -> "dict[str, Loss]":
        """Return further metrics of a batch."""
        if not self.one_label:
            return {}
        from bert_jax.losses.loss import weighted_loss

        right = logits.argmax(-1) == batch["labels"]
        return {"accuracy": weighted_loss(right.astype("float32"), batch["label_weights"])}

    # Evaluation

    @abstractmethod
    def score_sums(self, predicted: Sequence, truth: Sequence) -> ScoreSums:
        """Return the metrics of the predictions."""

    def baseline(self, truth: Sequence) -> Baseline | None:
        """Return the scores of one and the same prediction for every text; None if no such prediction is meaningful."""
        return None

    def score_breakdown(self, predicted: Sequence, truth: Sequence) -> dict[str, dict[str, float]]:
        """Return the scores of each part, such as each type of span, which `evaluate` shows."""
        return {}

    def is_right(self, predicted, truth) -> bool:
        return predicted == truth
