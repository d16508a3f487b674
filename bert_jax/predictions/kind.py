"""A kind of prediction: all that the package must know of it, from the file of labels to the report.

Each kind stands in a file of its own in kinds/, or is registered from outside of the package. Nothing else asks which
kind it is: training, evaluation, calibration, reports and `predict` call its methods. A kind never runs a model: it
is given tokenizers, texts, and the logits of their windows.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from bert_jax.data.examples.arrange import Target
from bert_jax.data.examples.columns import EVIDENT, Columns, Located
from bert_jax.data.examples.example import Example, check_labels, label_names, labels_of
from bert_jax.data.examples.texts import texts_in_rows
from bert_jax.errors import BertJaxError
from bert_jax.hub.layout import PREDICTION_KIND, Layout
from bert_jax.losses import Loss
from bert_jax.metrics import Sums
from bert_jax.predictions.calibration import NONE, Calibration
from bert_jax.predictions.label_errors import LabelError
from bert_jax.predictions.matching import match
from bert_jax.predictions.probe import Link
from bert_jax.predictions.view import Shown, View
from bert_jax.registry import Registry
from bert_jax.text.tokenizer import Encoding, Tokenizer
from bert_jax.text.truncation import Reading

KINDS = Registry("bert_jax.predictions.kinds", "kind of prediction", "KIND")


@dataclass(frozen=True)
class Windows:
    """A text as a model reads it."""

    encodings: list[Encoding]
    places: Any = None  # what else the kind needs to put the windows' logits together


@dataclass(frozen=True)
class Kind(ABC):
    """Bound to the labels and facts of a model, and to the data's names of the labels where it is evaluated.

    `raw` is what a model gives for a text before any calibration, in whatever form the kind likes; a prediction and a
    truth are what people read: a label, a set of them, a number, tags, an answer.
    """

    name: ClassVar[str]
    heads: ClassVar[tuple[str, ...]]  # of HEADS, any of whose logits it reads; the first is the published one
    best: ClassVar[str]  # the metric that chooses the best checkpoint
    units: ClassVar[str] = ""  # what is judged one by one, in the plural
    abstention_units: ClassVar[str] = ""  # what a model may abstain from
    # By which a linear function of frozen features learns it; None: none does.
    link: ClassVar[Link | None] = None
    contrasts: ClassVar[bool] = False  # a text has one of several classes, so that pairs have the same or not
    one_label: ClassVar[bool] = False  # of each unit: the loss takes class weights and label smoothing
    scoped: ClassVar[bool] = True  # the beginning of a text tells whether it is like the training texts

    labels: tuple[str, ...] = ()  # in the order of the model's outputs
    names: Mapping[str, str] = field(default_factory=dict)  # the data's labels -> the model's
    order: tuple[str, ...] = ()  # of the labels in the data; (): the model's

    # The model

    @classmethod
    def fits(cls, layout: Layout) -> bool:
        """Whether a model with this head gives predictions of this kind."""
        return False

    @classmethod
    def of(cls, layout: Layout) -> Self:
        return cls(layout.labels)

    @property
    def published(self) -> dict[str, Any]:
        """Keys of config.json besides the labels."""
        return {PREDICTION_KIND: self.name}

    @property
    def title(self) -> str:
        return f"{self.heads[0]} ({self.name})"

    # Examples

    @classmethod
    @abstractmethod
    def read(cls, spec: str, columns: Columns = EVIDENT, most: int = 0) -> list[Example]:
        """Labelled examples of a file, `most` of them drawn at random or, where it is 0, all."""

    @classmethod
    def read_file(cls, source: str, columns: Columns, ending: str) -> Iterator[Example] | None:
        """Examples without labels of a file that is no table; None where it is one."""
        return None

    @classmethod
    def read_rows(cls, rows: Iterable[Located], columns: Columns, first: Mapping) -> Iterator[Example]:
        """Examples without labels of the rows of a table, whose `first` row is known."""
        return texts_in_rows(rows, columns, need_label=False)

    @classmethod
    def learn(cls, train: Sequence[Example], known: Sequence[str] = ()) -> Self:
        """The kind with the labels of the training examples, or the `known` ones."""
        kind = cls(label_names(train, known))
        kind.check(train)
        return kind

    def advice(self, columns: Columns) -> str:
        """A hint where the labels look wrong; "" where they do not."""
        return ""

    def check(self, examples: Sequence[Example]) -> None:
        """Refuse examples whose labels are not the model's."""
        check_labels(examples, self.labels)

    def matched(self, examples: Sequence[Example], known: Sequence[str] = ()) -> tuple[Self, list[str]]:
        """The kind with the data's names of its labels, in their `known` order; and notes for people."""
        names, notes = match(examples, self.labels, known)
        in_order = [names[label] for label in known if label in names]
        order = in_order if sorted(in_order) == sorted(self.labels) else self.labels
        return replace(self, names=names, order=tuple(order)), notes

    def with_options(self, **options) -> Self:
        """With the options that this kind has; None changes nothing."""
        known = {field.name for field in fields(self)}
        return replace(self, **{name: x for name, x in options.items() if name in known and x is not None})

    @abstractmethod
    def truth(self, example: Example) -> Any:
        """The label of an example in the model's words."""

    def counted(self, example: Example) -> Iterable[str]:
        """What the report counts of an example."""
        return labels_of(example)

    def counts(self, examples: Iterable[Example]) -> Counter[str]:
        """How often each label occurs; nothing where there is nothing to tell apart, as of questions that all have an
        answer."""
        counts = Counter(label for example in examples for label in self.counted(example))
        return counts if self.labels or len(counts) > 1 else Counter()

    # Texts, and what a model gives for them

    def windows(self, tokenizer: Tokenizer, texts: Sequence, reading: Reading) -> list[Windows]:
        return [Windows(encodings) for encodings in reading.encode(tokenizer, texts)]

    @abstractmethod
    def raw(self, text, windows: Windows, logits: Sequence) -> Any:
        """The logits of a text's windows, as one outcome."""

    # Training

    @property
    @abstractmethod
    def targets(self) -> dict[str, Target]:
        """What is learnt from: further arrays of a batch."""

    @abstractmethod
    def values(self, example: Example, windows: Windows) -> list[dict[str, Any]]:
        """The targets of each window of an example."""

    @abstractmethod
    def shown(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        """The targets of a window as people read them: of the whole, and of tokens by their places."""

    @abstractmethod
    def loss(self, logits, batch: dict, weight, smoothing: float = 0.0) -> Loss:
        """What training minimises."""

    def scores(self, logits, batch: dict) -> dict[str, Loss]:
        """Further measures of each batch."""
        return {}

    # Predictions

    @abstractmethod
    def predicted(self, raw, calibration: Calibration) -> Any:
        """The prediction that an outcome stands for, in the same form as the truth."""

    @abstractmethod
    def sums(self, predicted: Sequence, truth: Sequence) -> Sums:
        """The metrics."""

    def baseline(self, truth: Sequence) -> "Baseline | None":
        """Of the same prediction for every text; None where a kind has none that means something."""
        return None

    def by_name(self, predicted: Sequence, truth: Sequence) -> dict[str, dict[str, float]]:
        """Scores of parts, by name, that `evaluate` shows."""
        return {}

    def is_right(self, predicted, truth) -> bool:
        return predicted == truth

    def calibrate(self, outcomes: "Outcomes") -> Calibration:
        """Learn how far the model can be trusted, from examples that are kept for it if a kind has this method."""
        return NONE

    def text(self, example: Example) -> str:
        """As a person reads it."""
        return example.text if isinstance(example.text, str) else " — ".join(example.text)

    def words(self, prediction, example: Example) -> str:
        """A prediction or truth, as a person reads it."""
        return prediction

    def show(self, outcomes: "Outcomes", likely, right) -> list[Shown]:
        """`likely` is the probability that a prediction is right."""
        rows = zip(outcomes.examples, outcomes.truth, outcomes.predicted, likely, right, strict=True)
        return [
            Shown(e.where, self.text(e), self.words(t, e), self.words(p, e), float(score), bool(r))
            for e, t, p, score, r in rows
        ]

    @abstractmethod
    def view(self, outcomes: "Outcomes") -> View:
        """What a report shows."""

    def label_errors(self, outcomes: "Outcomes") -> list[LabelError]:
        """Of each example whose label is doubtful, the most doubtful part; none where labels have no probability."""
        return []

    @abstractmethod
    def result(self, raw, calibration: Calibration) -> tuple[Any, float]:
        """The value that the Python API returns, and the probability that it is right as a whole."""

    def confidence(self, raw, calibration: Calibration) -> float:
        """The probability alone."""
        return self.result(raw, calibration)[1]

    def doubt(self, raw, calibration: Calibration) -> float:
        """How unsure the model is of an outcome, 0 where it is sure: by it texts are ranked for labelling."""
        return 1 - self.confidence(raw, calibration)

    def probabilities(self, raw, calibration: Calibration) -> Any:
        """Of every label."""
        raise BertJaxError(f'a prediction of the kind "{self.name}" has no probability for each label')

    @abstractmethod
    def as_json(self, raw, calibration: Calibration, enough: float | None) -> dict[str, Any]:
        """An object that `predict` writes; with `enough`, whether the model abstains below that probability."""

    def as_cells(self, raw, calibration: Calibration, enough: float | None) -> dict[str, Any]:
        """The same as cells of a table, whose rows have the same columns."""
        return self.as_json(raw, calibration, enough)

    def floor(self, calibration: Calibration, precision: float) -> float:
        """The lowest probability at which predictions are right this often."""
        return calibration.floor(precision)

    def temperature(self, calibration: Calibration) -> str:
        """In words; "" where there is none."""
        values = calibration.temperatures
        if not values:
            return ""
        if len(values) == 1:
            return f"temperature {values[0]:.3g}"
        return f"temperatures from {min(values):.3g} to {max(values):.3g} by label"


@dataclass(frozen=True)
class Baseline:
    """What a prediction that does not look at the text scores."""

    name: str  # such as "always the mean"
    scores: Mapping[str, float]


@dataclass
class Outcomes:
    """What a model gives for labelled examples, one by one: scores, calibrations and reports are made from it."""

    kind: Kind  # bound to the data's labels
    examples: Sequence[Example]
    raws: list  # one for each example
    calibration: Calibration = NONE
    notes: list[str] = field(default_factory=list)
    # Of each example to the texts that the model learnt from, see scope.py; None where they were not asked for.
    similarities: np.ndarray | None = None

    @cached_property
    def truth(self) -> list:
        return [self.kind.truth(example) for example in self.examples]

    @cached_property
    def predicted(self) -> list:
        return [self.kind.predicted(raw, self.calibration) for raw in self.raws]

    @property
    def sums(self) -> Sums:
        return self.kind.sums(self.predicted, self.truth)

    @property
    def baseline(self) -> "Baseline | None":
        return self.kind.baseline(self.truth)

    @property
    def view(self) -> View:
        return self.kind.view(self)

    @property
    def label_errors(self) -> list[LabelError]:
        """Labels that are probably wrong if the model did not train on them, the most probable errors first."""
        return sorted(self.kind.label_errors(self), key=lambda error: -error.doubt)


def kind_of(layout: Layout, head: str = "") -> Kind:
    """The kind of a model's predictions, or of those of one of its heads."""
    if kind := known_kind(layout, head):
        return kind
    has = ", ".join(layout.heads) or "none"
    raise BertJaxError(
        f"this model has no head for labels, tags or answers; its heads are: {has}. Train one with "
        "`bert-jax train --config configs/classify.py`, tag.py or answer.py"
    )


def known_kind(layout: Layout, head: str = "") -> Kind | None:
    """Likewise; None where it has no head for predictions."""
    if PREDICTION_KIND in layout.published:
        return KINDS.named_in_file(layout.published[PREDICTION_KIND]).of(layout)
    # The last head is the one that the directory is named after.
    for last in [head] if head else reversed(layout.heads):
        for kind in map(KINDS.__getitem__, KINDS.names()):
            if last in kind.heads and kind.fits(layout):
                return kind.of(layout)
    return None


def rounded(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in result.items()}


def abstained(score: float, enough: float | None) -> dict[str, bool]:
    return {} if enough is None else {"abstained": score < enough}
