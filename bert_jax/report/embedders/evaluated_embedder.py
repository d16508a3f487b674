"""Compute the vectors of a model directory that is evaluated."""

from collections.abc import Sequence

import numpy as np

from bert_jax.inference.embedder import embedding, reading_of, usual_prompt
from bert_jax.inference.model import load
from bert_jax.inference.streaming import results
from bert_jax.report.embedders.embedder_eval_config import Trial
from bert_jax.text.truncation import Truncated


class Embedder:
    def __init__(self, directory, trial: Trial):
        self.name, self.trial = str(directory), trial
        self.model = load(directory)

    def vectors(
        self, texts: Sequence[str], noun: str = "texts", prompts: Sequence[str] = ()
    ) -> tuple[np.ndarray, list[str]]:
        """Return unit vectors, with the first of these prompts that the model has, and notes for the user."""
        truncated = Truncated(reading_of(self.model, self.trial.long).max_length)
        of_chunk = embedding(
            self.model,
            prompt=usual_prompt(self.model.embedder, prompts),
            normalize=True,
            dimensions=self.trial.dimensions,
            long=self.trial.long,
            truncated=truncated,
        )
        vectors = np.stack(results(list(texts), of_chunk))
        notice = truncated.notice("--long windows reads all of them", noun)
        return vectors, [notice] if notice else []
