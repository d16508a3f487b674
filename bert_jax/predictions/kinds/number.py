"""Regression: a number for each text or pair."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.cells import LabelFormat, parse_number_cell
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import Target
from bert_jax.hub.layout import Layout
from bert_jax.metrics.regression import score_numbers
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.example_reader import ExampleReader
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.presentation import Presentation
from bert_jax.predictions.report_data import LabelError, ReportData
from bert_jax.predictions.selective import MinConfidence, Precision
from bert_jax.predictions.targets import Baseline
from bert_jax.predictions.whole_text_kind import WholeTextDecoder, WholeTextKind, WholeTextTargets

FAR = 2.0  # standard deviations, robustly estimated, beyond which a number is doubtful


class NumberTargets(WholeTextTargets):
    named_labels = False
    label_target = Target("float32")

    def truth(self, example: Example) -> Any:
        return example.label

    target_value = truth

    def describe(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        return f"{values['labels']:g}", {}

    def loss(self, logits, batch: dict, label_weights, smoothing: float = 0.0):
        from bert_jax.losses.loss import squared_error

        return squared_error(logits[..., 0], batch["labels"], label_weights)

    def score_sums(self, predicted: Sequence[float], truth: Sequence[float]) -> ScoreSums:
        return score_numbers(predicted, truth)

    def baseline(self, truth: Sequence[float]) -> Baseline:
        scores = score_numbers([float(np.mean(truth))] * len(truth), truth).scores
        # Correlations with a constant are undefined.
        return Baseline("always the mean", {"mean_squared_error": scores["mean_squared_error"]})


class NumberDecoder(WholeTextDecoder):
    def predict(self, raw: np.ndarray, calibration: Calibration) -> float:
        return float(raw[0])

    def result_and_confidence(self, raw: np.ndarray, calibration: Calibration) -> tuple[float, float]:
        return float(raw[0]), 1.0

    def uncertainty(self, raw: np.ndarray, calibration: Calibration) -> float:
        raise BertJaxError(
            "this model gives a number and no probability, so it cannot tell which texts to label next; leave out "
            "--rank-for-labelling"
        )

    def gather_values(self, values: list) -> np.ndarray:
        return np.array(values, np.float64)

    def require_labels(self, what: str) -> None:
        raise BertJaxError(f"{what} is for labels, and this model gives numbers; call predict")

    def label_scores(self, raw: np.ndarray, calibration: Calibration) -> np.ndarray:
        return raw

    def probabilities(self, raw: np.ndarray, calibration: Calibration) -> np.ndarray:
        raise BertJaxError("this model gives a number and no probability; call predict")

    def to_record(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        return {"number": round(float(raw[0]), 6)}

    def confidence_threshold(self, calibration: Calibration, precision: Precision) -> MinConfidence:
        raise BertJaxError("this model gives a number and no probability, so no precision can be guaranteed")


class NumberPresentation(Presentation):
    def report_data(self, outcomes: Outcomes) -> ReportData:
        return ReportData(numbers=(np.array(outcomes.predictions, float), np.array(outcomes.truth, float)))

    def label_errors(self, outcomes: Outcomes) -> list[LabelError]:
        predicted, true = outcomes.predictions, outcomes.truth
        errors = np.abs(np.array(predicted, float) - np.array(true, float))
        return [
            LabelError(outcomes.examples[i], f"{true[i]:g}", f"{predicted[i]:.4g}", float(errors[i]))
            for i in np.flatnonzero(errors > FAR * 1.4826 * np.median(errors)).tolist()
        ]


class Number(WholeTextKind):
    name = "number"
    best_metric = "spearman"
    link = "identity"
    problem_type = "regression"
    reader = ExampleReader(LabelFormat("number", lambda separator: parse_number_cell))
    targets_class, decoder_class, presentation = NumberTargets, NumberDecoder, NumberPresentation()

    @classmethod
    def matches_layout(cls, layout: Layout) -> bool:
        problem = cls.read_problem_type(layout)
        single = len(layout.labels) == 1 and not layout.is_cross_encoder
        return problem == "regression" or single and not problem.startswith("multi_label")

    @classmethod
    def from_layout(cls, layout: Layout) -> Self:
        if len(layout.labels) > 1:
            raise BertJaxError(
                f"this model gives {len(layout.labels)} numbers at once; only models with one number are supported"
            )
        return cls(("LABEL_0",))

    @classmethod
    def from_examples(cls, train: Sequence[Example], known: Sequence[str] = ()) -> Self:
        if len({example.label for example in train}) == 1:
            raise BertJaxError(
                f"{train[0].where} and all after it: only the number {train[0].label:g}; there is nothing to learn "
                "from it"
            )
        return cls(("LABEL_0",))


KIND = Number
