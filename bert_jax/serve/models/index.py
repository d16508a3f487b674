"""A served index: documents that are found by keywords, by vectors, or by both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bert_jax.inference.encoder import Encoder
from bert_jax.inference.text_vectors import EmbeddingPipeline
from bert_jax.search.index import RERANK_TOP, Hit, Index
from bert_jax.serve.call import Call
from bert_jax.serve.served_model import ServedModel
from bert_jax.text.truncation import TruncationCounter


@dataclass(frozen=True)
class Search:
    """A search with its settings, as a function of queries."""

    index: Index
    top_k: int = 10
    retrievers: tuple[str, ...] | None = None
    weights: tuple[tuple[str, float], ...] = ()
    reranker: Encoder | None = None
    rerank_top: int = RERANK_TOP

    def __call__(self, queries: Sequence[str]) -> list[list[Hit]]:
        return self.index.search(
            list(queries), self.top_k, self.retrievers, dict(self.weights), self.reranker, self.rerank_top
        )


class ServedIndex(ServedModel):
    kind: ClassVar = "index"

    def pipelines(self) -> list:
        if self.encoder is None:
            return []
        return [EmbeddingPipeline(self.encoder, truncated=TruncationCounter(self.max_length))]

    @property
    def encoder(self) -> Encoder | None:
        return self.model.encoder.model if self.model.manifest.model else None

    @property
    def max_length(self) -> int:
        return self.model.encoder.facts.max_length

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"documents": len(self.model), "retrievers": self.model.retrievers}

    async def search(
        self, call: Call, queries: Sequence[str], *, top_k: int = 10, retrievers: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None, reranker: Encoder | None = None, rerank_top: int = RERANK_TOP,
    ) -> list[list[Hit]]:  # fmt: skip
        chosen = tuple(retrievers) if retrievers is not None else None
        settings = tuple(sorted((weights or {}).items()))
        return await call.compute(Search(self.model, top_k, chosen, settings, reranker, rerank_top), queries)
