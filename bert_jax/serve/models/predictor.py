"""Served models that predict: each kind of prediction says what its records hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from bert_jax.inference.row_predictor import PredictionOptions, RowPredictor
from bert_jax.inference.runner import ModelInputs
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.predictions.selective import Precision, highest_precision
from bert_jax.serve.call import Call
from bert_jax.serve.served_model import ServedModel
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


class ServedPredictor(ServedModel):
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


class ServedClassifier(ServedPredictor):
    kind: ClassVar = "classifier"  # of one class, several labels, or a number


class ServedTagger(ServedPredictor):
    kind: ClassVar = "tagger"
    reads_whole = True


class ServedQuestionAnswerer(ServedPredictor):
    kind: ClassVar = "question-answerer"
    reads_whole = True


class ServedReranker(ServedPredictor):
    kind: ClassVar = "reranker"

    def pipelines(self) -> list:
        return [self.pipeline(RequestOptions(raw=True))]

    async def rank(
        self, call: Call, query: str, documents: Sequence[str], *, raw_scores: bool = False, truncate: bool = True
    ) -> list[tuple[int, float]]:  # fmt: skip
        """Return the index and the score of each document, best first."""
        outcomes = await self.predict(
            call, [(query, document) for document in documents], RequestOptions(raw=True), truncate
        )
        logits = [float(np.ravel(outcome.raw)[0]) for outcome in outcomes]
        kind, calibration = self.model.kind, self.model.calibration
        scores = logits
        if not raw_scores:
            scores = [float(kind.result_and_confidence(o.raw, calibration)[0]) for o in outcomes]
        # Sort by logits, because probabilities near 1 are equal in floating point.
        return [(n, scores[n]) for n in sorted(range(len(logits)), key=lambda n: (-logits[n], n))]
