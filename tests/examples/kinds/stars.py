"""An invented kind of prediction: stars from 1 to 5, learnt as a number that is rounded, right where the star is."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax.data.examples.cells import LabelFormat, parse_number_cell
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import Target
from bert_jax.losses.loss import squared_error
from bert_jax.metrics.classification import count_items
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.calibration_fitting import (
    CalibratedPredictions,
    cross_fit,
    document_names,
    fit_logistic,
)
from bert_jax.predictions.example_reader import ExampleReader
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.presentation import Presentation
from bert_jax.predictions.report_data import ReportData
from bert_jax.predictions.selective import abstention_fields
from bert_jax.predictions.whole_text_kind import WholeTextDecoder, WholeTextKind, WholeTextTargets


class StarTargets(WholeTextTargets):
    named_labels = False
    label_target = Target("float32")

    def check(self, examples):
        assert all(1 <= example.label <= 5 for example in examples)

    def truth(self, example: Example) -> int:
        return example.label

    target_value = truth

    def describe(self, values: Mapping[str, Any]):
        return f"{values['labels']} stars", {}

    def loss(self, logits, batch, weight, smoothing=0.0):
        return squared_error(logits[..., 0], batch["labels"] - 3.0, weight)

    def score_sums(self, predicted, truth) -> ScoreSums:
        apart = np.abs(np.array(predicted, float) - truth)
        rows = np.stack([apart == 0, apart <= 1, np.ones(len(apart))], 1).astype(float)
        return ScoreSums(
            rows, lambda sums: {n: sums[..., i] / sums[..., 2] for i, n in enumerate(("exact", "near"))}
        )


class StarDecoder(WholeTextDecoder):
    def predict(self, raw, calibration: Calibration) -> int:
        return int(np.clip(round(3 + float(raw[0])), 1, 5))

    def confidences(self, raws, calibration: Calibration):
        """The nearer to the middle of a star, the surer."""
        numbers = 3 + np.array([float(raw[0]) for raw in raws])
        odds = 2 - 8 * np.abs(numbers - np.clip(np.round(numbers), 1, 5))
        temperature = calibration.temperatures[0] if calibration.is_fitted else 1.0
        return 1 / (1 + np.exp(-(odds / temperature + calibration.offset)))

    def calibrate(self, outcomes: Outcomes) -> Calibration:
        right, before = (
            np.equal(outcomes.predictions, outcomes.truth),
            self.confidences(outcomes.raw_outputs, UNCALIBRATED),
        )

        def fitted(rows) -> Calibration:
            slope, offset = fit_logistic(np.log(before / (1 - before))[rows], right[rows])
            return Calibration(self.name, (), (1 / slope,), offset=offset)

        def judge(calibration, rows) -> CalibratedPredictions:
            after = self.confidences(outcomes.raw_outputs, calibration)[rows]
            return CalibratedPredictions(before[rows], after, right[rows], after, right[rows], rows)

        return cross_fit([fitted], judge, document_names(outcomes.examples))

    def result_and_confidence(self, raw, calibration):
        return self.predict(raw, calibration), float(self.confidences([raw], calibration)[0])

    def to_record(self, raw, calibration, enough):
        stars, score = self.result_and_confidence(raw, calibration)
        return {"stars": stars, "score": score} | abstention_fields(score, enough)


class StarPresentation(Presentation):
    def prediction_text(self, prediction, example) -> str:
        return f"{prediction} stars"

    def report_data(self, outcomes: Outcomes) -> ReportData:
        decoder = outcomes.kind.decoder
        before, after = (
            decoder.confidences(outcomes.raw_outputs, c) for c in (UNCALIBRATED, outcomes.calibration)
        )
        right, sides = np.equal(outcomes.predictions, outcomes.truth), (outcomes.predictions, outcomes.truth)
        return ReportData(
            before, after, right, after, right,
            counts=count_items(*([[star] for star in side] for side in sides)),
            pairs=[(str(t), str(p)) for p, t in zip(*sides, strict=True)],
            examples=self.report_examples(outcomes, after, right),
        )  # fmt: skip


class Stars(WholeTextKind):
    name = "stars"
    best_metric = "exact"
    reader = ExampleReader(
        LabelFormat("stars", lambda separator: lambda place, value: int(parse_number_cell(place, value)))
    )
    targets_class, decoder_class, presentation = StarTargets, StarDecoder, StarPresentation()

    @classmethod
    def from_examples(cls, train, known=()):
        return cls(("STARS",))


KIND = Stars
