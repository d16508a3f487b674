"""A kind of prediction: everything that the package must know about it, from reading labels to the report.

Each kind is a file in kinds/, or is registered from outside the package. No other code branches on the kind: training,
evaluation, calibration, reports and `predict` call its methods. A kind never runs a model: it receives tokenizers,
texts, and the logits of their windows.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.registry import Registry
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, LocatedRow
from bert_jax.data.examples.example import Example, check_labels, label_names, labels_of
from bert_jax.data.examples.labelled_texts import parse_labelled_texts
from bert_jax.data.examples.row_packing import Target
from bert_jax.hub.layout import PREDICTION_KIND, Layout
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.label_matching import find_label, match_label_names, quote_labels
from bert_jax.predictions.linear_model import Link
from bert_jax.predictions.report_data import LabelError, ReportData, ReportExample
from bert_jax.predictions.selective import MinConfidence, Precision
from bert_jax.text.encoding import Encoding
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bert_jax.losses.loss import Loss

KINDS = Registry("bert_jax.predictions.kinds", "kind of prediction", "KIND")


@dataclass(frozen=True)
class TextWindows:
    """A text, encoded as the windows that a model reads."""

    encodings: list[Encoding]
    extra: Any = None  # what else the kind needs to combine the logits of the windows


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of prediction with the labels and settings of a model and, in evaluation, the data's names for the labels.

    `raw` is a model's output for a text before calibration, in a form that the kind chooses. Predictions and truths are
    in a form that people read: a label, a set of labels, a number, tags, an answer.
    """

    name: ClassVar[str]
    heads: ClassVar[tuple[str, ...]]  # names in HEADS that it can read; published models have the first
    best_metric: ClassVar[str]  # the metric that selects the best checkpoint
    units: ClassVar[str] = ""  # a plural noun: what is right or wrong one by one, such as words
    abstention_units: ClassVar[str] = ""  # a plural noun: what a model may abstain on
    # The link function of a probe, a linear function of frozen features; None: no probe can learn it.
    link: ClassVar[Link | None] = None
    # A text has one of several classes, so two texts share it or not.
    supports_contrastive: ClassVar[bool] = False
    one_label: ClassVar[bool] = False  # a unit has one label, so the loss takes class weights and smoothing
    # The beginning of a text shows whether it is like the training texts.
    detects_out_of_scope: ClassVar[bool] = True
    separates_labels: ClassVar[bool] = False  # a cell may hold several labels with a separator between them
    marks_text: ClassVar[bool] = False  # whether a terminal shows predictions as parts of the text

    labels: tuple[str, ...] = ()  # in the order of the model's outputs
    names: Mapping[str, str] = field(default_factory=dict)  # a label in the data -> the model's label
    order: tuple[str, ...] = ()  # the labels in the data's order; (): in the model's

    # The model

    @classmethod
    def matches_layout(cls, layout: Layout) -> bool:
        """Return whether a model, which has one of the heads, makes predictions of this kind."""
        return False

    @classmethod
    def from_layout(cls, layout: Layout) -> Self:
        return cls(layout.labels)

    @property
    def hf_config_keys(self) -> dict[str, Any]:
        """The keys that this kind adds to config.json, besides the labels."""
        return {PREDICTION_KIND: self.name}

    @property
    def title(self) -> str:
        return f"{self.heads[0]} ({self.name})"

    # Examples

    @classmethod
    @abstractmethod
    def read_examples(cls, spec: str, columns: ExampleColumns = AUTODETECT, most: int = 0) -> list[Example]:
        """Read a file's labelled examples: a random sample of at most `most`, or all if `most` is 0."""

    @classmethod
    def describe_columns(cls, spec: str, columns: ExampleColumns) -> str:
        """Describe which column of a labelled table is used for what; "" if usual names and the flags say it all."""
        return ""

    @classmethod
    def complete_columns(cls, where: str, row: Mapping, columns: ExampleColumns) -> ExampleColumns:
        """Return the columns of an unlabelled table with this first row, completed by those that this kind alone
        finds."""
        return columns

    @classmethod
    def read_unlabelled_file(
        cls, source: str, columns: ExampleColumns, ending: str
    ) -> Iterator[Example] | None:
        """Read unlabelled examples from a file that is not a table; return None if it is a table."""
        return None

    @classmethod
    def read_unlabelled_rows(
        cls, rows: Iterable[LocatedRow], columns: ExampleColumns, first: Mapping
    ) -> Iterator[Example]:
        """Read unlabelled examples from the rows of a table; `first` is its first row."""
        return parse_labelled_texts(rows, columns, need_label=False)

    @classmethod
    def from_examples(cls, train: Sequence[Example], known: Sequence[str] = ()) -> Self:
        """Return the kind with the `known` labels or, if there are none, those of the training examples."""
        kind = cls(label_names(train, known))
        kind.check_examples(train)
        return kind

    def label_hint(self, examples: Sequence[Example], columns: ExampleColumns) -> str:
        """Return a hint if the labels look wrong, otherwise ""."""
        return ""

    def check_examples(self, examples: Sequence[Example]) -> None:
        """Refuse examples with labels that the model does not have."""
        check_labels(examples, self.labels)

    def match_labels(self, examples: Sequence[Example], known: Sequence[str] = ()) -> tuple[Self, list[str]]:
        """Return the kind with the data's names for its labels, in their `known` order, and notes for the user."""
        names, notes = match_label_names(examples, self.labels, known)
        in_order = [names[label] for label in known if label in names]
        order = in_order if sorted(in_order) == sorted(self.labels) else self.labels
        if unknown := [label for label in label_names(examples) if label not in names]:
            notes = [*notes, *self.note_unknown_labels(examples, unknown)]
        return replace(self, names=names, order=tuple(order)), notes

    def note_unknown_labels(self, examples: Sequence[Example], unknown: Sequence[str]) -> list[str]:
        """Say which labels of the data the model does not know, and how their examples count."""
        count = sum(not set(unknown).isdisjoint(labels_of(example)) for example in examples)
        return [
            f"the model has no label {quote_labels(unknown)} (first in {find_label(examples, unknown)}); examples with "
            f"it count as errors: {count:,}"
        ]

    def with_options(self, **options) -> Self:
        """Return the kind with the options that it has fields for; a value of None changes nothing."""
        known = {field.name for field in fields(self)}
        return replace(self, **{name: x for name, x in options.items() if name in known and x is not None})

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

    # Texts, and what a model gives for them

    def encode_windows(
        self, tokenizer: Tokenizer, texts: Sequence, reading: EncodingOptions
    ) -> list[TextWindows]:
        return [TextWindows(encodings) for encodings in reading.encode(tokenizer, texts)]

    @abstractmethod
    def combine_windows(self, text, windows: TextWindows, logits: Sequence) -> Any:
        """Combine the logits of a text's windows into one raw output."""

    # Training

    @property
    @abstractmethod
    def targets(self) -> dict[str, Target]:
        """The arrays that training adds to a batch, by name."""

    @abstractmethod
    def target_values(self, example: Example, windows: TextWindows) -> list[dict[str, Any]]:
        """Return the training targets of each window of an example."""

    @abstractmethod
    def describe_targets(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
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

    def label_indices(self, labels: Sequence[str]) -> np.ndarray:
        """Return the indices of labels among the model's; -1 for one that the model does not know."""
        number = {label: i for i, label in enumerate(self.labels)}
        return np.array([number.get(label, -1) for label in labels])

    # Predictions

    @abstractmethod
    def predict(self, raw, calibration: Calibration) -> Any:
        """Return the prediction for a raw output, in a form that can be compared with the truth."""

    @abstractmethod
    def score_sums(self, predicted: Sequence, truth: Sequence) -> ScoreSums:
        """Return the metrics of the predictions."""

    def baseline(self, truth: Sequence) -> "Baseline | None":
        """Return the scores of one and the same prediction for every text; None if no such prediction is meaningful."""
        return None

    def score_breakdown(self, predicted: Sequence, truth: Sequence) -> dict[str, dict[str, float]]:
        """Return the scores of each part, such as each type of span, which `evaluate` shows."""
        return {}

    def is_right(self, predicted, truth) -> bool:
        return predicted == truth

    def calibrate(self, outcomes: "Outcomes") -> Calibration:
        """Fit a calibration. Examples are kept for it in training only if a kind overrides this method."""
        return UNCALIBRATED

    def example_text(self, example: Example) -> str:
        """Return the text of an example, as a person reads it."""
        return example.text if isinstance(example.text, str) else " — ".join(example.text)

    def prediction_text(self, prediction, example: Example) -> str:
        """Return a prediction or truth, as a person reads it."""
        return prediction

    def report_examples(self, outcomes: "Outcomes", likely, right) -> list[ReportExample]:
        """Return the rows of a report; `likely` is the probability that each prediction is right."""
        rows = zip(outcomes.examples, outcomes.truth, outcomes.predictions, likely, right, strict=True)
        return [
            ReportExample(
                e.where,
                self.example_text(e),
                self.prediction_text(t, e),
                self.prediction_text(p, e),
                float(score),
                bool(r),
            )
            for e, t, p, score, r in rows
        ]

    @abstractmethod
    def report_data(self, outcomes: "Outcomes") -> ReportData:
        """Return what a report shows."""

    def label_errors(self, outcomes: "Outcomes") -> list[LabelError]:
        """Return the most doubtful label of each example that has a doubtful one. By default there are none."""
        return []

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

    def mark_text(self, text, prediction: dict[str, Any]) -> dict[str, Any]:
        """Return a prediction with the text, in which its parts are marked, instead of these parts; for kinds that mark
        texts."""
        return prediction

    def confidence_threshold(self, calibration: Calibration, precision: Precision) -> MinConfidence:
        """Return the lowest confidence for which the precision is guaranteed, or that of each label which has one."""
        if not isinstance(precision, Mapping):
            return calibration.confidence_threshold(precision)
        if not precision:
            raise BertJaxError(
                'a precision names no label; give one of them at least, such as {"spam": 0.99}'
            )
        return {label: calibration.label_threshold(label, share) for label, share in precision.items()}


@dataclass(frozen=True)
class Baseline:
    """The scores of a prediction that ignores the text."""

    name: str  # such as "always the mean"
    scores: Mapping[str, float]


@dataclass
class Outcomes:
    """A model's outputs for labelled examples, from which scores, calibrations and reports are computed."""

    kind: Kind  # with the data's names for its labels
    examples: Sequence[Example]
    raw_outputs: list  # one for each example
    calibration: Calibration = UNCALIBRATED
    notes: list[str] = field(default_factory=list)
    # How similar each example is to the training texts, see out_of_scope.py; None if that was not requested.
    similarities: np.ndarray | None = None

    @cached_property
    def truth(self) -> list:
        return [self.kind.truth(example) for example in self.examples]

    @cached_property
    def predictions(self) -> list:
        return [self.kind.predict(raw, self.calibration) for raw in self.raw_outputs]

    @property
    def score_sums(self) -> ScoreSums:
        return self.kind.score_sums(self.predictions, self.truth)

    @property
    def baseline(self) -> "Baseline | None":
        return self.kind.baseline(self.truth)

    @property
    def report_data(self) -> ReportData:
        return self.kind.report_data(self)

    @property
    def label_errors(self) -> list[LabelError]:
        """The labels that are probably wrong, most probable errors first. The model must not have trained on them."""
        return sorted(self.kind.label_errors(self), key=lambda error: -error.error_score)


def require_kind(layout: Layout, head: str = "") -> Kind:
    """Return the kind of a model's predictions, or of the predictions of one `head`."""
    if kind := find_kind(layout, head):
        return kind
    has = ", ".join(layout.heads) or "none"
    raise BertJaxError(
        f"this model has no head for labels, tags or answers; its heads are: {has}. `bert-jax train "
        "--config classify` trains one (--config tag, --config answer)"
    )


def find_kind(layout: Layout, head: str = "") -> Kind | None:
    """Return the kind of a model's predictions, or of those of one `head`; None if there is no head for predictions."""
    if PREDICTION_KIND in layout.hf_config:
        return KINDS.look_up_from_file(layout.hf_config[PREDICTION_KIND]).from_layout(layout)
    # The last head is the one that the directory is named after.
    for last in [head] if head else reversed(layout.heads):
        for kind in map(KINDS.__getitem__, KINDS.names()):
            if last in kind.heads and kind.matches_layout(layout):
                return kind.from_layout(layout)
    return None


def round_floats(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in result.items()}
