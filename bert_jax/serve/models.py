"""What the server serves: a model or an index of each kind, under its name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.masks import FillingPipeline
from bert_jax.inference.row_predictor import PredictionOptions, RowPredictor
from bert_jax.inference.runner import ModelInputs
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.inference.zero_shot import (
    CandidateLabels,
    EntailmentPipeline,
)
from bert_jax.predictions.selective import highest_precision
from bert_jax.predictions.whole_text_kind import Label
from bert_jax.search.index import Hit, Index
from bert_jax.search.index_encoder import IndexEncoder
from bert_jax.serve.call import Call
from bert_jax.serve.requests import unprocessable
from bert_jax.serve.served_embedders import ServedEmbedder, ServedMultiVectorEmbedder, ServedSparseEmbedder
from bert_jax.serve.served_model import ServedModel
from bert_jax.text.truncation import TruncationCounter

MOST_FILLINGS = 100  # of a mask; each number of them is a program of its own
USUAL_FILLINGS = 5


@dataclass(frozen=True)
class RequestOptions(PredictionOptions):
    """What a request asks of predictions."""

    raw: bool = False  # the outcomes before they become records

    def __hash__(self) -> int:
        return hash((self.long_texts, self.out_of_scope, self.raw))  # a precision may be a dict


class PredictionPipeline(OutcomePipeline):
    """Predicts the records of texts, as `bert-jax predict` writes them."""

    def __init__(self, model: Any, options: RequestOptions):
        self.options, self.predictor = options, RowPredictor(model, options)
        kind = self.predictor.kind
        counter = TruncationCounter(model.encoding_options(kind).max_length)
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
        truncates = not self.reads_whole and options.long_texts == "truncate"
        most = self.max_length if truncates else None
        return await call.compute(self.pipeline(options), texts, truncate=truncate, most_tokens=most)


class ServedClassifier(ServedPredictor):
    kind: ClassVar = "classifier"  # of one class, several labels, or a number

    async def zero_shot(
        self, call: Call, texts: Sequence[str], candidates: CandidateLabels
    ) -> list[list[Label]]:
        """Return the labels of each text, best first."""
        pipeline = EntailmentPipeline(self.model, candidates, TruncationCounter(self.max_length))
        # As pairs, so that the limits of the queue count what is computed.
        outcomes = await call.compute(pipeline, pipeline.pair(texts), most_tokens=self.max_length)
        return [candidates.rank(outcome.raw) for outcome in pipeline.group(outcomes)]


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
        pairs = [(query, document) for document in documents]
        outcomes = await self.predict(call, pairs, RequestOptions(raw=True), truncate)
        logits = [float(np.ravel(outcome.raw)[0]) for outcome in outcomes]
        kind, calibration = self.model.kind, self.model.calibration
        scores = logits
        if not raw_scores:
            scores = [float(kind.decoder.result_and_confidence(o.raw, calibration)[0]) for o in outcomes]
        # Sort by logits, because probabilities near 1 are equal in floating point.
        return [(n, scores[n]) for n in sorted(range(len(logits)), key=lambda n: (-logits[n], n))]


class ServedMaskedLM(ServedModel):
    kind: ClassVar = "masked-lm"

    def __init__(self, name: str, model: Any):
        super().__init__(name, model)
        self.pipeline = lru_cache(maxsize=8)(lambda top: FillingPipeline(model, top))

    def pipelines(self) -> list:
        return [self.pipeline(USUAL_FILLINGS)]

    async def fill(self, call: Call, texts: Sequence[str], top: int = USUAL_FILLINGS) -> list:
        """Return the fillings of each mask of each text."""
        most = min(MOST_FILLINGS, self.model.config.vocab_size)
        if not 1 <= top <= most:
            raise unprocessable(f"top_k must be a whole number from 1 to {most}, not {top}")
        # One program serves all that ask for no more than the usual number.
        computed = USUAL_FILLINGS if top <= USUAL_FILLINGS else most
        filled = await call.compute(self.pipeline(min(computed, most)), texts)
        masks = [of_text if isinstance(of_text[0], list) else [of_text] for of_text in filled]
        return [[fillings[:top] for fillings in of_text] for of_text in masks]


@dataclass(frozen=True)
class Search:
    """A search with its settings, as a function of queries."""

    index: Index
    top_k: int
    retrievers: tuple[str, ...] | None
    weights: tuple[tuple[str, float], ...]
    reranker: Encoder | None
    rerank_top: int
    explain: bool

    def __call__(self, queries: Sequence[str]) -> list[list[Hit]]:
        return self.index.search(
            list(queries), self.top_k, self.retrievers, dict(self.weights), self.reranker, self.rerank_top,
            self.explain,
        )  # fmt: skip


class ServedIndex(ServedModel):
    """Documents that are found by keywords, by vectors, or by both."""

    kind: ClassVar = "index"

    @property
    def encoders(self) -> list[IndexEncoder]:
        return [self.model.encoder_of(rows) for rows in self.model.manifest.models]

    def pipelines(self) -> list:
        return [encoder.pipeline() for encoder in self.encoders]

    @property
    def encoder(self) -> Encoder | None:
        return self.encoders[0].model if self.encoders else None

    @property
    def max_length(self) -> int:
        return self.encoders[0].facts.max_length

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"documents": len(self.model), "retrievers": self.model.retrievers}


# The name of a model's class -> what it is served as.
SERVED: dict[str, type[ServedModel]] = {
    "Embedder": ServedEmbedder, "StaticEmbedder": ServedEmbedder, "M3Embedder": ServedEmbedder,
    "SparseEmbedder": ServedSparseEmbedder, "MultiVectorEmbedder": ServedMultiVectorEmbedder,
    "Reranker": ServedReranker, "Classifier": ServedClassifier, "Tagger": ServedTagger,
    "QuestionAnswerer": ServedQuestionAnswerer, "MaskedLM": ServedMaskedLM, "Index": ServedIndex,
}  # fmt: skip


def serve_model(name: str, model: Any) -> ServedModel:
    if served := SERVED.get(type(model).__name__):
        return served(name, model)
    raise BertJaxError(
        f"{name} is a plain encoder, which answers nothing; save it as an embedder first: "
        'bert_jax.Embedder.load(DIR, pooling="mean").save(NEW)'
    )
