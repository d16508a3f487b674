"""A kind of prediction: everything that the package must know about it, from reading labels to the report.

Each kind is a file in kinds/, or is registered from outside the package. No other code branches on the kind: training,
evaluation, calibration, reports and `predict` call the methods of its four parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.registry import Registry
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.example import Example, label_names, labels_of
from bert_jax.hub.layout import PREDICTION_KIND, Layout
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.decoder import Decoder
from bert_jax.predictions.example_reader import ExampleReader
from bert_jax.predictions.label_matching import find_label, match_label_names, quote_labels
from bert_jax.predictions.linear_model import Link
from bert_jax.predictions.presentation import Presentation
from bert_jax.predictions.report_data import LabelError, ReportData
from bert_jax.predictions.targets import Baseline, Targets

KINDS = Registry("bert_jax.predictions.kinds", "kind of prediction", "KIND")
Part = TypeVar("Part", Targets, Decoder)


@dataclass(frozen=True)
class Kind:
    """A kind of prediction with the labels and settings of a model and, in evaluation, the data's names for the labels.

    Its file names the classes of its four parts.
    """

    name: ClassVar[str]
    heads: ClassVar[tuple[str, ...]]  # names in HEADS that it can read; published models have the first
    best_metric: ClassVar[str]  # the metric that selects the best checkpoint
    # The link function of a probe, a linear function of frozen features; None: no probe can learn it.
    link: ClassVar[Link | None] = None
    # A text has one of several classes, so two texts share it or not.
    supports_contrastive: ClassVar[bool] = False
    # The beginning of a text shows whether it is like the training texts.
    detects_out_of_scope: ClassVar[bool] = True
    separates_labels: ClassVar[bool] = False  # a cell may hold several labels with a separator between them

    reader: ClassVar[ExampleReader] = ExampleReader()
    targets_class: ClassVar[type[Targets]]
    decoder_class: ClassVar[type[Decoder]]
    presentation: ClassVar[Presentation]

    labels: tuple[str, ...] = ()  # in the order of the model's outputs
    names: Mapping[str, str] = field(default_factory=dict)  # a label in the data -> the model's label
    order: tuple[str, ...] = ()  # the labels in the data's order; (): in the model's

    @cached_property
    def targets(self) -> Targets:
        return self.make_part(self.targets_class)

    @cached_property
    def decoder(self) -> Decoder:
        return self.make_part(self.decoder_class)

    def make_part(self, part: type[Part]) -> Part:
        """Return a part with the fields that the kind has, too."""
        return part(**{field.name: getattr(self, field.name) for field in fields(part)})

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
    def from_examples(cls, train: Sequence[Example], known: Sequence[str] = ()) -> Self:
        """Return the kind with the `known` labels or, if there are none, those of the training examples."""
        kind = cls(label_names(train, known))
        kind.targets.check(train)
        return kind

    def label_hint(self, examples: Sequence[Example], columns: ExampleColumns) -> str:
        """Return a hint if the labels look wrong, otherwise ""."""
        return ""

    def match_labels(self, examples: Sequence[Example], known: Sequence[str] = ()) -> tuple[Self, list[str]]:
        """Return the kind with the data's names for its labels, in their `known` order, and notes for the user."""
        if not self.targets.named_labels:
            return self, []
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
        return [self.kind.targets.truth(example) for example in self.examples]

    @cached_property
    def predictions(self) -> list:
        return [self.kind.decoder.predict(raw, self.calibration) for raw in self.raw_outputs]

    @property
    def score_sums(self) -> ScoreSums:
        return self.kind.targets.score_sums(self.predictions, self.truth)

    @property
    def baseline(self) -> Baseline | None:
        return self.kind.targets.baseline(self.truth)

    @property
    def report_data(self) -> ReportData:
        return self.kind.presentation.report_data(self)

    @property
    def label_errors(self) -> list[LabelError]:
        """The labels that are probably wrong, most probable errors first. The model must not have trained on them."""
        return sorted(self.kind.presentation.label_errors(self), key=lambda error: -error.error_score)


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
