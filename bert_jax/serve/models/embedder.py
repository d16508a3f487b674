"""A served embedder."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.encoder import StatesPipeline
from bert_jax.inference.runner import ModelInputs
from bert_jax.inference.text_vectors import EmbeddingPipeline, embedder_reading, find_prompt_name
from bert_jax.serve.call import Call
from bert_jax.serve.served_model import ServedModel
from bert_jax.text.tokenizer import Encoding
from bert_jax.text.truncation import TruncationCounter

TextOrIds = str | list[int]


class TokenIdsPipeline(EmbeddingPipeline):
    """Computes the vectors of texts that were tokenized before, [CLS] and [SEP] included."""

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
            over = max(0, len(ids) - self.reading.max_length)
            kept = [*ids[: len(ids) - over - 1], special.sep]
            rows.append(Encoding(kept, [0] * len(kept), [(0, 0)] * len(kept), over))
        return ModelInputs(texts, rows, rows, [[row] for row in rows])


class ServedEmbedder(ServedModel):
    kind: ClassVar = "embedder"

    def __init__(self, name: str, model: Any):
        super().__init__(name, model)
        self.counter = TruncationCounter(self.max_length)
        self.pipeline = lru_cache(maxsize=64)(self._pipeline)
        self.states = StatesPipeline(model, truncated=TruncationCounter(model.config.max_position_embeddings))

    @property
    def max_length(self) -> int:
        return embedder_reading(self.model).max_length

    def _pipeline(
        self, of_ids: bool, prompt: str | None, normalize: bool | None, dimensions: int | None
    ) -> EmbeddingPipeline:
        of_inputs = TokenIdsPipeline if of_ids else EmbeddingPipeline
        return of_inputs(
            self.model, prompt=prompt, normalize=normalize, dimensions=dimensions, truncated=self.counter
        )

    def pipelines(self) -> list:
        return [self.pipeline(False, None, None, None)]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "dimensions": self.model.layout.vector_size,
            "prompts": sorted(self.model.embedder.prompts),
        }

    async def embed(
        self, call: Call, texts: Sequence[TextOrIds], *, prompt: str | None = None, prompts: Sequence[str] = (),
        normalize: bool | None = None, dimensions: int | None = None, truncate: bool = True,
    ) -> np.ndarray:  # fmt: skip
        """Return the vectors [N, D], with the named prompt or the first of `prompts` that the model has."""
        of_ids = bool(texts) and not isinstance(texts[0], str)
        if prompt is None and prompts:
            prompt = find_prompt_name(self.model.embedder, prompts)
        width = self.model.layout.vector_size
        call.refuse_large_answer(len(texts) * min(dimensions or width, width))
        function = self.pipeline(of_ids, prompt, normalize, dimensions)
        return np.stack(await call.compute(function, texts, truncate=truncate, most_tokens=self.max_length))
