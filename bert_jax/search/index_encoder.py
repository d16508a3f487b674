"""The model of an index: it computes the vectors of documents and queries, and measures passages in tokens."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.inference.embedder import DOCUMENTS, QUERIES, embedding, prompt_text, reading_of, usual_prompt
from bert_jax.inference.model import load
from bert_jax.search.cached_vectors import fingerprint
from bert_jax.search.index_manifest import ModelFacts
from bert_jax.search.passages import Tokens
from bert_jax.text.truncation import Truncated


class Encoder:
    def __init__(self, directory):
        self.directory = hub.existing(directory)
        self.model = load(self.directory)
        self.truncated = Truncated(reading_of(self.model).max_length)

    @cached_property
    def facts(self) -> ModelFacts:
        embedder = self.model.embedder
        return ModelFacts(
            path=str(self.directory.resolve()),
            fingerprint=fingerprint(self.directory),
            tokenizer=self.model.tokenizer.fingerprint,
            pooling=embedder.pooling,
            normalize=True,
            query_prompt=prompt_text(embedder, usual_prompt(embedder, QUERIES)),
            document_prompt=prompt_text(embedder, usual_prompt(embedder, DOCUMENTS)),
            max_length=reading_of(self.model).max_length,
            dimensions=self.model.layout.vector_size,
        )

    @property
    def ruler(self) -> Tokens:
        return Tokens(self.model.tokenizer, self.model.embedder.lower_case)

    def room(self, passage_tokens: int) -> int:
        """Return the number of tokens left for a passage besides the special tokens and the prompt."""
        (before,) = self.model.tokenizer.encode([self.facts.document_prompt])
        return passage_tokens - len(before.input_ids)

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        name = usual_prompt(self.model.embedder, DOCUMENTS)
        return embedding(self.model, prompt=name, normalize=True, truncated=self.truncated)(texts)

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        name = usual_prompt(self.model.embedder, QUERIES)
        return embedding(self.model, prompt=name, normalize=True)(texts)


def encoder_of(index: Path, facts: ModelFacts, directory) -> Encoder:
    """Load the model that an index was built with, from where it was then or from another directory."""
    path = directory or facts.path
    if not directory and not Path(path).exists():
        raise BertJaxError(f"the model of {index} is no longer at {path}; name its directory with --model")
    encoder = Encoder(path)
    if replace(encoder.facts, path=facts.path) != facts:
        raise BertJaxError(
            f"{path} is not the model that {index} was built with; name that model, or build a new index"
        )
    return encoder
