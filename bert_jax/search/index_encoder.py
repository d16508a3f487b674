"""The model of an index: it computes the vectors of documents and queries, and measures passages in tokens."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.inference.load import load
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    embedder_reading,
    find_prompt_name,
    make_embed_function,
    prompt_text,
)
from bert_jax.search.cached_vectors import model_fingerprint
from bert_jax.search.index_manifest import IndexedModel
from bert_jax.search.passages import TokenizerCounter
from bert_jax.text.truncation import TruncationCounter


class IndexEncoder:
    def __init__(self, directory):
        opened = ModelDirectory.open(directory)
        self.directory, self.model = opened.path, load(opened)
        self.truncated = TruncationCounter(embedder_reading(self.model).max_length)

    @cached_property
    def facts(self) -> IndexedModel:
        embedder = self.model.embedder
        return IndexedModel(
            path=str(self.directory.resolve()),
            fingerprint=model_fingerprint(self.directory),
            tokenizer=self.model.tokenizer.fingerprint,
            pooling=embedder.pooling,
            normalize=True,
            query_prompt=prompt_text(embedder, find_prompt_name(embedder, QUERY_PROMPTS)),
            document_prompt=prompt_text(embedder, find_prompt_name(embedder, DOCUMENT_PROMPTS)),
            max_length=embedder_reading(self.model).max_length,
            dimensions=self.model.layout.vector_size,
        )

    @property
    def token_counter(self) -> TokenizerCounter:
        return TokenizerCounter(self.model.tokenizer, self.model.embedder.lower_case)

    def passage_room(self, passage_tokens: int) -> int:
        """Return the number of tokens left for a passage besides the special tokens and the prompt."""
        (before,) = self.model.tokenizer.encode([self.facts.document_prompt])
        return passage_tokens - len(before.input_ids)

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        name = find_prompt_name(self.model.embedder, DOCUMENT_PROMPTS)
        return make_embed_function(self.model, prompt=name, normalize=True, truncated=self.truncated)(texts)

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        name = find_prompt_name(self.model.embedder, QUERY_PROMPTS)
        return make_embed_function(self.model, prompt=name, normalize=True)(texts)


def load_encoder(index: Path, facts: IndexedModel, directory) -> IndexEncoder:
    """Load the model that an index was built with, from where it was then or from another directory."""
    path = directory or facts.path
    if not directory and not Path(path).exists():
        raise BertJaxError(f"the model of {index} is no longer at {path}; name its directory with --model")
    encoder = IndexEncoder(path)
    if replace(encoder.facts, path=facts.path) != facts:
        raise BertJaxError(
            f"{path} is not the model that {index} was built with; name that model, or build a new index"
        )
    return encoder
