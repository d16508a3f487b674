"""The model of an index: it computes the vectors of documents and queries, and measures passages in tokens."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.paths import require_path
from bert_jax.hub.local_directory import resolve_directory
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.hub.onnx_files import NoOnnxFile
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    EmbeddingPipeline,
    embedder_reading,
    find_prompt_name,
    prompt_text,
)
from bert_jax.search.index_manifest import IndexedModel
from bert_jax.search.passages import TokenizerCounter
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

IndexModel = str | PathLike[str] | Encoder  # a model's directory, or a model loaded from one


class IndexEncoder:
    def __init__(self, model: IndexModel, **computed: Any):
        self.model = model if isinstance(model, Encoder) else load(model, **computed)
        self.directory = directory_of(self.model)
        self.truncated = TruncationCounter(embedder_reading(self.model).max_length)

    @cached_property
    def facts(self) -> IndexedModel:
        embedder = self.model.embedder
        return IndexedModel(
            path=str(self.directory),
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
        return EmbeddingPipeline(self.model, prompt=name, normalize=True, truncated=self.truncated)(texts)

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        name = find_prompt_name(self.model.embedder, QUERY_PROMPTS)
        truncated = TruncationWarner(self.facts.max_length)
        return EmbeddingPipeline(self.model, prompt=name, normalize=True, truncated=truncated)(texts)


def require_model(model: object) -> None:
    """Refuse an argument `model` of an index with which the index could not be opened later."""
    if not isinstance(model, Encoder):
        require_path(model, "model")
    elif model.directory is None:
        raise BertJaxError(
            "model is not in a directory from which the index can load it later; save it, and give the directory"
        )


def directory_of(model: IndexModel) -> Path:
    return resolve_directory(model.directory if isinstance(model, Encoder) else model).resolve()


def load_encoder(index: Path, facts: IndexedModel, model: IndexModel | None, **computed: Any) -> IndexEncoder:
    """Load the model that an index was built with, from where it was then or from another directory, to be `computed`
    with these arguments of `load`."""
    if model is None and not Path(facts.path).exists():
        raise BertJaxError(
            f"the model of {index} is no longer at {facts.path}; name its directory with --model"
        )
    try:
        encoder = IndexEncoder(facts.path if model is None else model, **computed)
    except NoOnnxFile as error:
        raise BertJaxError(f"{error}; name OUT with --model, or after the index for `serve`") from None
    if replace(encoder.facts, path=facts.path) != facts:
        raise BertJaxError(
            f"{encoder.directory} is not the model that {index} was built with; name that model or what "
            "`export` made of it, which counts as the same if it holds no other weights, or build a new index"
        )
    return encoder
