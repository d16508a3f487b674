"""Classification: one of several classes for each text or pair."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.example import Example, labels_of
from bert_jax.hub.layout import Layout
from bert_jax.metrics.classification import count_items, score_single_label
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.calibration_fitting import (
    CalibratedPredictions,
    ExampleIndices,
    cross_fit,
    document_names,
    expected_right,
    fit_temperature,
)
from bert_jax.predictions.decoder import round_floats
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.label_matching import label_indices
from bert_jax.predictions.presentation import Presentation
from bert_jax.predictions.report_data import LabelError, ReportData
from bert_jax.predictions.selective import MinConfidence, PredictedLabels, abstains, abstention_fields
from bert_jax.predictions.targets import Baseline
from bert_jax.predictions.whole_text_kind import Label, WholeTextDecoder, WholeTextKind, WholeTextTargets

FEW = 100  # examples, below which the accuracy has a prior and calibration is not optional, see `fit_class_calibration`
NUMBER = re.compile(r"-?\d+([.,]\d+)?")


class ClassTargets(WholeTextTargets):
    one_label = True

    def truth(self, example: Example) -> str:
        (label,) = labels_of(example)
        return self.names.get(label, label)

    def target_value(self, example: Example) -> int:
        return self.labels.index(self.truth(example))

    def describe(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        return self.labels[values["labels"]], {}

    def score_sums(self, predicted: Sequence[str], truth: Sequence[str]) -> ScoreSums:
        return score_single_label(predicted, truth, self.order or self.labels)

    def baseline(self, truth: Sequence[str]) -> Baseline:
        ((frequent, _),) = Counter(truth).most_common(1)
        return Baseline(
            "always the most frequent class", self.score_sums([frequent] * len(truth), truth).scores
        )


class ClassDecoder(WholeTextDecoder):
    def predict(self, raw: np.ndarray, calibration: Calibration) -> str:
        return self.labels[raw.argmax()]

    def probabilities(self, raw: np.ndarray, calibration: Calibration) -> np.ndarray:
        return calibration.probabilities(raw)

    def result_and_confidence(self, raw: np.ndarray, calibration: Calibration) -> tuple[Label, float]:
        likely = calibration.probabilities(raw)
        order = np.argsort(-likely)
        first, second = likely[order[:2]]
        return Label(self.labels[order[0]], float(first), float(first - second)), float(first)

    def keep_confident(self, result: Label, confidence: float, min_confidence: MinConfidence) -> Any:
        return None if abstains(confidence, min_confidence, result.label) else result

    def to_record(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        label, score = self.result_and_confidence(raw, calibration)
        return round_floats(asdict(label)) | abstention_fields(score, min_confidence, label.label)

    def calibrate(self, outcomes: Outcomes) -> Calibration:
        logits, numbers = np.stack(outcomes.raw_outputs), label_indices(outcomes.truth, self.labels)
        return fit_class_calibration(logits, numbers, self.labels, document_names(outcomes.examples))


class ClassPresentation(Presentation):
    def report_data(self, outcomes: Outcomes) -> ReportData:
        logits, numbers = np.stack(outcomes.raw_outputs), label_indices(outcomes.truth, outcomes.kind.labels)
        rows, labels = np.arange(len(numbers)), outcomes.kind.labels
        predictions = class_predictions(logits, numbers, labels, outcomes.calibration, rows)
        return ReportData(
            **vars(predictions),
            counts=count_items(([p] for p in outcomes.predictions), ([t] for t in outcomes.truth), labels),
            pairs=list(zip(outcomes.truth, outcomes.predictions, strict=True)),
            examples=self.report_examples(outcomes, predictions.confidence, predictions.right),
        )  # fmt: skip

    def label_errors(self, outcomes: Outcomes) -> list[LabelError]:
        likely = outcomes.calibration.probabilities(np.stack(outcomes.raw_outputs))
        numbers = label_indices(outcomes.truth, outcomes.kind.labels)
        of_label = likely[np.arange(len(likely)), numbers]
        return [
            LabelError(example, true, predicted, float(1 - p), float(p))
            for example, true, predicted, p in zip(
                outcomes.examples, outcomes.truth, outcomes.predictions, of_label, strict=True
            )
            if predicted != true and true in outcomes.kind.labels
        ]


class Classes(WholeTextKind):
    name = "classes"
    best_metric = "accuracy"
    link = "softmax"
    supports_contrastive = True
    problem_type = "single_label_classification"
    targets_class, decoder_class, presentation = ClassTargets, ClassDecoder, ClassPresentation()

    @classmethod
    def matches_layout(cls, layout: Layout) -> bool:
        return len(layout.labels) > 1 and not cls.read_problem_type(layout).startswith(
            ("multi_label", "regression")
        )

    def label_hint(self, examples: Sequence[Example], columns: ExampleColumns) -> str:
        if len(self.labels) < 3 or not all(NUMBER.fullmatch(label) for label in self.labels):
            return ""
        return (
            f"the labels are numbers, but are learnt as {len(self.labels):,} classes; --config.problem_type=regression "
            "learns them as numbers"
        )

    def match_labels(self, examples: Sequence[Example], known: Sequence[str] = ()):
        # f1 is that of the second label in the data's order, which GLUE has, or else in the model's.
        kind, notes = super().match_labels(examples, known)
        return kind, notes + ([f'f1 is that of "{kind.order[1]}"'] if len(kind.order) == 2 else [])


def fit_class_calibration(
    logits: np.ndarray, truth: np.ndarray, labels: Sequence[str], documents: Sequence[str]
) -> Calibration:
    """Fit a calibration; `truth` holds the index of each text's class."""
    # The accuracy on 16 examples is often far from that on others, and a choice between two ways is mere chance.
    few = len(truth) < FEW
    expected = expected_right(len(labels)) if few else (0.0, 0.0)

    unscaled = Calibration(Classes.name, tuple(labels), (1.0,))

    def scaled(rows: ExampleIndices) -> Calibration:
        return replace(unscaled, temperatures=(fit_temperature(logits[rows], truth[rows], expected),))

    true = dict(zip(labels, np.bincount(truth, minlength=len(labels)).tolist(), strict=True))
    apply = partial(class_predictions, logits, truth, labels)
    return cross_fit([scaled] if few else [lambda rows: unscaled, scaled], apply, documents, true)


def class_predictions(
    logits: np.ndarray,
    truth: np.ndarray,
    labels: Sequence[str],
    calibration: Calibration,
    rows: ExampleIndices,
) -> CalibratedPredictions:
    predicted = logits[rows].argmax(-1)
    right = predicted == truth[rows]
    before, after = (c.probabilities(logits[rows]).max(-1) for c in (UNCALIBRATED, calibration))
    by_label = PredictedLabels(np.array(tuple(labels))[predicted], after, right, rows)
    return CalibratedPredictions(before, after, right, after, right, rows, by_label)


KIND = Classes
