"""The base of served models that predict: each kind of prediction says what its records hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from bert_jax.inference.pipeline import ModelInputs
from bert_jax.inference.row_predictor import PredictionOptions, RowPredictor
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.predictions.selective import Precision, highest_precision
from bert_jax.serve import served_model
from bert_jax.serve.call import Call
from bert_jax.text.truncation import TruncationCounter


@dataclass(frozen=True)
class RequestOptions:
    """What a request asks of predictions."""

    precision: float | tuple[tuple[str, float], ...] | None = None
    probabilities: bool = False
    out_of_scope: float | None = None
    allow_no_answer: bool | None = None
    long_texts: str = "truncate"
    raw: bool = False  # the outcomes before they become records

    @property
    def prediction_options(self) -> PredictionOptions:
        precision: Precision | None = (
            dict(self.precision) if isinstance(self.precision, tuple) else self.precision
        )
        return PredictionOptions(
            self.long_texts, self.allow_no_answer, precision, self.out_of_scope, self.probabilities
        )


def hashable_precision(given: float | Mapping[str, float] | None) -> Any:
    return tuple(sorted(given.items())) if isinstance(given, Mapping) else given


class PredictionPipeline(OutcomePipeline):
    """Predicts the records of texts, as `bert-jax predict` writes them."""

    def __init__(self, model: Any, options: RequestOptions):
        self.options, self.predictor = options, RowPredictor(model, options.prediction_options)
        kind = self.predictor.kind
        counter = TruncationCounter(model.reading(kind).max_length)
        super().__init__(model, kind, options.long_texts, counter, options.out_of_scope is not None)

    def postprocess(self, inputs: ModelInputs, outputs: list) -> Iterator[Any]:
        outcomes = super().postprocess(inputs, outputs)
        return outcomes if self.options.raw else map(self.predictor.make_prediction, outcomes)


class ServedPredictor(served_model.ServedModel):
    reads_whole = False  # whether long texts are read whole without being asked to

    def __init__(self, name: str, model: Any):
        super().__init__(name, model)
        self.pipeline = lru_cache(maxsize=64)(lambda options: PredictionPipeline(model, options))

    def pipelines(self) -> list:
        return [self.pipeline(RequestOptions())]

    @cached_property
    def highest_precision(self) -> float:
        """The highest precision that a request may ask for; 0 if none can be guaranteed."""
        return highest_precision(self.model.calibration.levels)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "labels": list(self.model.labels),
            "predicts": self.model.kind.name,
            "calibrated": self.model.calibration.is_fitted,
            "highest_precision": self.highest_precision,
        }

    async def predict(
        self, call: Call, texts: Sequence, options: RequestOptions = RequestOptions(), truncate: bool = True
    ) -> list:
        function = self.pipeline(options)
        truncates = not self.reads_whole and options.long_texts == "truncate"
        most = self.max_length if truncates else None
        return await call.compute(function, texts, truncate=truncate, most_tokens=most)
