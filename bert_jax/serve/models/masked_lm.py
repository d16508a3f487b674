"""A served masked language model."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from bert_jax.inference.masks import FillingPipeline
from bert_jax.serve.call import Call
from bert_jax.serve.requests import unprocessable
from bert_jax.serve.served_model import ServedModel

MOST_FILLINGS = 100  # of a mask; each number of them is a program of its own
USUAL_FILLINGS = 5


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
