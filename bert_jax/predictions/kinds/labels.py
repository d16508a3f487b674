"""Multi-label classification: any number of labels for each text or pair."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from bert_jax.data.examples.cells import ClassParser, LabelFormat, parse_labels, split_label
from bert_jax.data.examples.columns import SEPARATOR, ExampleColumns
from bert_jax.data.examples.example import Example, check_labels, label_names, labels_of
from bert_jax.data.examples.row_packing import Target
from bert_jax.hub.layout import Layout
from bert_jax.metrics.classification import count_items, multi_hot, score_multi_label
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.calibration_fitting import (
    CalibratedPredictions,
    ExampleIndices,
    cross_fit,
    document_names,
    fit_binary_temperature,
    label_threshold,
)
from bert_jax.predictions.decoder import round_floats
from bert_jax.predictions.example_reader import ExampleReader
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.label_matching import unmatched_labels
from bert_jax.predictions.presentation import Presentation
from bert_jax.predictions.report_data import LabelError, ReportData
from bert_jax.predictions.selective import MinConfidence, PredictedLabels, abstains, abstention_fields
from bert_jax.predictions.whole_text_kind import Label, WholeTextDecoder, WholeTextKind, WholeTextTargets


def cell_reader(separator: str):
    parse_class = ClassParser()
    return lambda where, value: parse_labels(where, value, separator, parse_class)


class LabelTargets(WholeTextTargets):
    def check(self, examples: Sequence[Example]) -> None:
        check_labels(examples, self.labels, fewest=1)

    def truth(self, example: Example) -> set[str]:
        return {self.names.get(label, label) for label in labels_of(example)}

    @property
    def label_target(self) -> Target:
        return Target("float32", (len(self.labels),))

    def target_value(self, example: Example) -> np.ndarray:
        return multi_hot([self.truth(example)], self.labels)[0]

    def describe(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        return " ".join(np.array(self.labels)[values["labels"]]) or "none", {}

    def loss(self, logits, batch: dict, label_weights, smoothing: float = 0.0):
        from bert_jax.losses.loss import binary_cross_entropy

        return binary_cross_entropy(logits, batch["labels"], label_weights)

    def score_sums(self, predicted: Sequence[set], truth: Sequence[set]) -> ScoreSums:
        return score_multi_label(predicted, truth, self.labels)


class LabelDecoder(WholeTextDecoder):
    def predict(self, raw: np.ndarray, calibration: Calibration) -> set[str]:
        chosen = self.probabilities(raw, calibration) > calibration.decision_thresholds(len(self.labels))
        return {self.labels[i] for i in np.flatnonzero(chosen)}

    def predicted_value(self, raw: np.ndarray, calibration: Calibration) -> np.ndarray:
        chosen = self.predict(raw, calibration)
        return np.array([label in chosen for label in self.labels], np.int64)

    def gather_values(self, values: list) -> np.ndarray:
        return np.stack(values) if values else np.zeros((0, len(self.labels)), np.int64)

    def probabilities(self, raw: np.ndarray, calibration: Calibration) -> np.ndarray:
        return calibration.probabilities(raw, multi_label=True)

    def result_and_confidence(self, raw: np.ndarray, calibration: Calibration) -> tuple[list[Label], float]:
        likely = calibration.probabilities(raw, multi_label=True)
        above = calibration.decision_thresholds(len(self.labels))
        every = [
            Label(self.labels[i], float(likely[i]), float(likely[i] - above[i])) for i in np.argsort(-likely)
        ]
        return [label for label in every if label.margin > 0], float(all_right(likely, likely > above))

    def to_record(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        # The score is the probability that no label is wrong and none is missing.
        # With a precision for each label, the model abstains from labels, otherwise from texts.
        labels, score = self.result_and_confidence(raw, calibration)
        of_label = min_confidence if isinstance(min_confidence, Mapping) else None
        of_text = None if of_label else min_confidence
        return {
            "labels": [
                round_floats(asdict(label)) | abstention_fields(label.score, of_label, label.label)
                for label in labels
            ],
            "score": round(score, 6),
        } | abstention_fields(score, of_text)

    def to_cells(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        # Join the labels as a column of labels is read, with a separator that no label contains.
        cells = self.to_record(raw, calibration, min_confidence)
        separator = next((mark for mark in ",;|" if mark not in "".join(self.labels)), SEPARATOR)
        kept = [label["label"] for label in cells["labels"] if not label.get("abstained")]
        if isinstance(min_confidence, Mapping):
            cells["abstained"] = len(kept) < len(cells["labels"])
        return cells | {"labels": separator.join(kept)}

    def keep_confident(self, result: list[Label], confidence: float, min_confidence: MinConfidence) -> Any:
        if isinstance(min_confidence, Mapping):
            return [label for label in result if not abstains(label.score, min_confidence, label.label)]
        return super().keep_confident(result, confidence, min_confidence)

    def calibrate(self, outcomes: Outcomes) -> Calibration:
        logits, truth = np.stack(outcomes.raw_outputs), multi_hot(outcomes.truth, self.labels)
        return fit_label_calibration(logits, truth, self.labels, document_names(outcomes.examples))


class LabelPresentation(Presentation):
    units = "labels of texts"

    def report_data(self, outcomes: Outcomes) -> ReportData:
        logits, truth = np.stack(outcomes.raw_outputs), self.known_truth(outcomes)
        rows = np.arange(len(truth))
        predictions = label_predictions(logits, truth, outcomes.kind.labels, outcomes.calibration, rows)
        right = np.array([p == t for p, t in zip(outcomes.predictions, outcomes.truth, strict=True)])
        return ReportData(
            **vars(predictions) | {"correct": right},
            counts=count_items(outcomes.predictions, outcomes.truth, outcomes.kind.labels),
            pairs=[pair for sets in zip(outcomes.predictions, outcomes.truth, strict=True) for pair in confused(*sets)],
            examples=self.report_examples(outcomes, predictions.confidence, right),
        )  # fmt: skip

    def known_truth(self, outcomes: Outcomes) -> np.ndarray:
        """Return [texts, labels]: which labels each text has, without those that the model does not know."""
        return multi_hot(
            [labels & set(outcomes.kind.labels) for labels in outcomes.truth], outcomes.kind.labels
        )

    def label_errors(self, outcomes: Outcomes) -> list[LabelError]:
        likely = outcomes.calibration.probabilities(np.stack(outcomes.raw_outputs), multi_label=True)
        truth, predicted = self.known_truth(outcomes), multi_hot(outcomes.predictions, outcomes.kind.labels)
        # The probability that each label is rightly given or left out if the model disagrees, and 1 if it agrees.
        of_label = np.where(truth == predicted, 1, np.where(truth, likely, 1 - likely))
        errors = []
        for i in np.flatnonzero((truth != predicted).any(1)).tolist():
            n = of_label[i].argmin()
            sides = outcomes.kind.labels[n], f"not {outcomes.kind.labels[n]}"
            label, other = sides if truth[i, n] else sides[::-1]
            p = float(of_label[i, n])
            errors.append(LabelError(outcomes.examples[i], label, other, 1 - p, p))
        return errors

    def prediction_text(self, prediction: set[str], example: Example) -> str:
        return ", ".join(sorted(prediction)) or "none"


class Labels(WholeTextKind):
    name = "labels"
    best_metric = "f1_micro"
    link = "sigmoid"
    problem_type = "multi_label_classification"
    separates_labels = True
    reader = ExampleReader(LabelFormat("labels", cell_reader, may_be_blank=True))
    targets_class, decoder_class, presentation = LabelTargets, LabelDecoder, LabelPresentation()

    @classmethod
    def matches_layout(cls, layout: Layout) -> bool:
        return cls.read_problem_type(layout).startswith("multi_label")

    def label_hint(self, examples: Sequence[Example], columns: ExampleColumns) -> str:
        joined = next((name for name in self.labels if len(split_label(name)) > 1), None)
        if joined is None:
            return ""
        now = columns.label_separator or SEPARATOR
        return (
            f'the label "{joined}" may be several labels; set --config.data.columns.label_separator, now {now!r}, to '
            "what stands between labels"
        )

    def match_labels(self, examples: Sequence[Example], known: Sequence[str] = ()):
        new = set(label_names(examples)) - set(self.labels)
        if any(not set(self.labels).isdisjoint(split_label(label)) for label in new):
            hint = "set --label-separator to what stands between several labels in a cell"
            raise unmatched_labels(examples, self.labels, hint)
        return super().match_labels(examples, known)


def fit_label_calibration(
    logits: np.ndarray, truth: np.ndarray, labels: Sequence[str], documents: Sequence[str]
) -> Calibration:
    """Fit a calibration; `truth` [texts, labels] is 0 or 1. A text is right if all its labels are."""

    def unscaled(rows: ExampleIndices) -> Calibration:
        return add_thresholds((1.0,) * len(labels), rows)

    def scaled(rows: ExampleIndices) -> Calibration:
        z, y = logits[rows], truth[rows]
        common = fit_binary_temperature(z.ravel(), y.ravel())
        return add_thresholds(
            tuple(fit_binary_temperature(*both, common) for both in zip(z.T, y.T, strict=True)), rows
        )

    def add_thresholds(temperatures: tuple[float, ...], rows: ExampleIndices) -> Calibration:
        calibration = Calibration(Labels.name, tuple(labels), temperatures)
        likely = calibration.probabilities(logits[rows], multi_label=True)
        thresholds = (label_threshold(*both) for both in zip(likely.T, truth[rows].T, strict=True))
        return replace(calibration, thresholds=tuple(thresholds))

    true = dict(zip(labels, truth.sum(0).astype(int).tolist(), strict=True))
    return cross_fit((unscaled, scaled), partial(label_predictions, logits, truth, labels), documents, true)


def label_predictions(
    logits: np.ndarray,
    truth: np.ndarray,
    labels: Sequence[str],
    calibration: Calibration,
    rows: ExampleIndices,
) -> CalibratedPredictions:
    truth = truth[rows] > 0
    before, after = (c.probabilities(logits[rows], multi_label=True) for c in (UNCALIBRATED, calibration))
    chosen = after > calibration.decision_thresholds(len(labels))
    text, label = np.nonzero(chosen)
    by_label = PredictedLabels(
        np.array(tuple(labels))[label], after[text, label], truth[text, label], rows[text]
    )
    confidence, correct = all_right(after, chosen), (chosen == truth).all(-1)
    return CalibratedPredictions(
        before.ravel(), after.ravel(), truth.ravel(), confidence, correct, rows, by_label
    )


def all_right(likely: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the probability that all labels of a text are right, as if they were independent."""
    return np.where(chosen, likely, 1 - likely).prod(-1)


def confused(predicted: set[str], truth: set[str]) -> list[tuple[str, str]]:
    """Return pairs (true, predicted): right labels with themselves, missing labels with those predicted instead.

    >>> confused({"a", "b"}, {"a", "c"}), confused({"a"}, set()), confused(set(), {"a"})
    ([('a', 'a'), ('c', 'b')], [('not true', 'a')], [('a', 'missed')])
    >>> confused({"d", "c"}, {"b", "a"})  # in order, whatever the hashes of this process
    [('a', 'c'), ('a', 'd'), ('b', 'c'), ('b', 'd')]
    """
    missing, extra = sorted(truth - predicted), sorted(predicted - truth)
    wrong = [(t, p) for t in missing or ["not true"] for p in extra or ["missed"]] if missing or extra else []
    return [(label, label) for label in sorted(predicted & truth)] + wrong


KIND = Labels
