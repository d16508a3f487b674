"""What the server serves of embedders: vectors of texts, dense or sparse, and of tokens."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.multi_vector_encoder import DOCUMENT, TASKS
from bert_jax.inference.computations import SparseVector
from bert_jax.inference.encoder import StatesPipeline
from bert_jax.inference.runner import ModelInputs, TextPipeline
from bert_jax.inference.sparse_vectors import SparsePipeline
from bert_jax.inference.text_vectors import (
    EmbeddingPipeline,
    PromptedPipeline,
    embedder_encoding_options,
    find_prompt_name,
)
from bert_jax.inference.token_vectors import TokenVectorPipeline, task_for
from bert_jax.inference.zero_shot import (
    LABEL_ALONE,
    CandidateLabels,
    check_several,
    compare_labels,
)
from bert_jax.predictions.whole_text_kind import Label
from bert_jax.serve.call import Call
from bert_jax.serve.compute_queue import estimate_tokens
from bert_jax.serve.served_model import ServedModel
from bert_jax.text.encoding import Encoding
from bert_jax.text.truncation import TruncationCounter


class OfTokenIds(PromptedPipeline):
    """Reads texts that were tokenized before, [CLS] and [SEP] included."""

    def preprocess(self, texts: Sequence) -> ModelInputs:
        special, size = self.model.tokenizer.special, self.model.config.vocab_size
        rows = []
        for ids in texts:
            # Other tokenizers' ids are often in range, too; their vectors would mean nothing.
            if ids[:1] != [special.cls] or ids[-1] != special.sep or not all(0 <= i < size for i in ids):
                raise BertJaxError(
                    "token ids must be this model's own, as /tokenize gives them, with its special tokens; send "
                    "texts instead. langchain-openai sends other ids unless check_embedding_ctx_length=False"
                )
            over = max(0, len(ids) - self.encoding_options.max_length)
            kept = [*ids[: len(ids) - over - 1], special.sep]
            rows.append(Encoding(kept, [0] * len(kept), [(0, 0)] * len(kept), over))
        return ModelInputs(texts, rows, rows, [[row] for row in rows])


class TokenIdsPipeline(OfTokenIds, EmbeddingPipeline): ...


class SparseTokenIdsPipeline(OfTokenIds, SparsePipeline): ...


class TokenVectorsOfIdsPipeline(TokenVectorPipeline, OfTokenIds): ...


class ServedEmbedder(ServedModel):
    kind: ClassVar = "embedder"
    of_texts: ClassVar[type[PromptedPipeline]] = EmbeddingPipeline
    of_ids: ClassVar[type[PromptedPipeline]] = TokenIdsPipeline

    def __init__(self, name: str, model: Any):
        super().__init__(name, model)
        counter = TruncationCounter(self.max_length)
        self.pipeline = lru_cache(maxsize=64)(
            lambda of_inputs, **options: of_inputs(model, truncated=counter, **options)
        )
        self.states = StatesPipeline(model, truncated=TruncationCounter(model.config.max_position_embeddings))

    @property
    def max_length(self) -> int:
        return embedder_encoding_options(self.model).max_length

    def pipelines(self) -> list:
        return [self.pipeline(self.of_texts)]

    def pipeline_for(self, texts: Sequence, **options: Any) -> PromptedPipeline:
        """Return that of texts, or of lists of token ids."""
        return self.pipeline(
            self.of_ids if texts and not isinstance(texts[0], str) else self.of_texts, **options
        )

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "dimensions": self.model.layout.vector_size,
            "prompts": sorted(self.model.prompts),
        }

    async def embed(
        self, call: Call, texts: Sequence[str | list[int]], *, prompt: str | None = None, prompts: Sequence[str] = (),
        dimensions: int | None = None, truncate: bool = True, normalize: bool = True,
    ) -> np.ndarray:  # fmt: skip
        """Return the vectors [N, D], with the named prompt or the first of `prompts` that the model has."""
        width = self.model.layout.vector_size
        call.refuse_large_answer(len(texts) * min(dimensions or width, width))
        function = self.pipeline_for(
            texts,
            prompt=find_prompt_name(self.model.embedder, prompts) if prompt is None else prompt,
            normalize=normalize,
            dimensions=dimensions,
        )
        return np.stack(await call.compute(function, texts, truncate=truncate, most_tokens=self.max_length))

    async def embed_all(
        self, call: Call, texts: Sequence[str], prompt: str | None, truncate: bool
    ) -> list[np.ndarray]:
        """Return the states of the tokens of each text."""
        return await compute_tokens(call, self.states, texts, truncate, self.model.config.hidden_size)

    async def zero_shot(
        self, call: Call, texts: Sequence[str], candidates: CandidateLabels
    ) -> list[list[Label]]:
        """Return the labels of each text, best first."""
        check_several(candidates)
        hypotheses = candidates.hypotheses(LABEL_ALONE)
        vectors = await self.embed(call, [*hypotheses, *texts])
        of_labels, of_texts = np.split(vectors, [len(hypotheses)])
        return [candidates.rank(outcome.raw) for outcome in compare_labels(of_texts, of_labels)]


class ServedSparseEmbedder(ServedEmbedder):
    kind: ClassVar = "sparse-embedder"
    of_texts, of_ids = SparsePipeline, SparseTokenIdsPipeline

    async def embed_sparse(
        self, call: Call, texts: Sequence[str | list[int]], prompt: str | None, truncate: bool
    ) -> list[SparseVector]:
        most = self.model.layout.sparse.max_active_dims or self.model.layout.vector_size
        call.refuse_large_answer(len(texts) * most)
        function = self.pipeline_for(texts, prompt=prompt)
        return await call.compute(function, texts, truncate=truncate, most_tokens=self.max_length)


class ServedMultiVectorEmbedder(ServedEmbedder):
    kind: ClassVar = "multi-vector-embedder"
    of_texts, of_ids = TokenVectorPipeline, TokenVectorsOfIdsPipeline

    def __init__(self, name: str, model: Any):
        super().__init__(name, model)
        self.pipeline = lru_cache(maxsize=64)(lambda of_inputs, **options: of_inputs(model, **options))

    @property
    def max_length(self) -> int:
        return self.model.layout.multi_vector.longest(DOCUMENT, self.model.config.max_position_embeddings)

    def pipelines(self) -> list:
        return [self.pipeline(self.of_texts, task=task) for task in TASKS]

    async def embed_all(
        self, call: Call, texts: Sequence[str | list[int]], prompt: str | None, truncate: bool
    ) -> list[np.ndarray]:
        """Return the vectors of the tokens of each text, which are queries if the prompt's name says so."""
        pipeline: Any = self.pipeline_for(texts, **task_for(self.model, prompt))
        minimum = pipeline.expansion.length if pipeline.expansion else 0
        return await compute_tokens(call, pipeline, texts, truncate, self.model.layout.vector_size, minimum)

    async def rank(
        self, call: Call, query: str, documents: Sequence[str], *, raw_scores: bool = False, truncate: bool = True
    ) -> list[tuple[int, float]]:  # fmt: skip
        """Return the index and the MaxSim of each document, best first; it has no other scale than its own."""
        computed = (
            call.compute(pipeline, texts, truncate=truncate, most_tokens=pipeline.truncated.max_length)
            for pipeline, texts in zip(self.pipelines(), ([query], documents), strict=True)
        )
        vectors = await asyncio.gather(*computed)
        (scores,) = (await asyncio.to_thread(self.model.similarity, *vectors)).tolist()
        return sorted(enumerate(scores), key=lambda ranked: (-ranked[1], ranked[0]))


async def compute_tokens(
    call: Call, pipeline: TextPipeline, texts: Sequence, truncate: bool, width: int, minimum: int = 0
) -> list[np.ndarray]:
    """Return the arrays [T, D] of texts, of which each has at least so many tokens."""
    longest = pipeline.truncated.max_length
    tokens = sum(min(longest, max(minimum, estimate_tokens(text))) for text in texts)
    call.refuse_large_answer(tokens * width)
    return await call.compute(pipeline, texts, truncate=truncate, most_tokens=longest)
