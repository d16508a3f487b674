"""Compute the vectors of a model directory that is evaluated."""

from collections.abc import Sequence

import numpy as np

from bert_jax.inference.load import load
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_vectors import EmbeddingPipeline, embedder_reading, find_prompt_name
from bert_jax.report.embedders.embedder_eval_config import EmbedderEvalConfig
from bert_jax.text.truncation import TruncationCounter, windows_advice


class EvaluatedEmbedder:
    def __init__(self, directory, trial: EmbedderEvalConfig):
        self.name, self.trial = str(directory), trial
        self.model = load(directory)

    def encode_texts(
        self, texts: Sequence[str], noun: str = "texts", prompts: Sequence[str] = ()
    ) -> tuple[np.ndarray, list[str]]:
        """Return unit vectors, with the first of these prompts that the model has, and notes for the user."""
        truncated = TruncationCounter(embedder_reading(self.model, self.trial.long_texts).max_length)
        of_chunk = EmbeddingPipeline(
            self.model,
            prompt=find_prompt_name(self.model.embedder, prompts),
            normalize=True,
            dimensions=self.trial.dimensions,
            long_texts=self.trial.long_texts,
            truncated=truncated,
        )
        vectors = np.stack(map_texts(list(texts), of_chunk))
        notice = truncated.notice(windows_advice(), noun)
        return vectors, [notice] if notice else []
