"""The models of an index: they compute the rows of documents and queries, and measure passages in tokens."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.paths import require_path
from bert_jax.hub.local_directory import resolve_directory
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.hub.onnx_files import NoOnnxFile
from bert_jax.inference.computations import SparseVector
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.inference.sparse_embedder import SparseEmbedder
from bert_jax.inference.sparse_vectors import SparsePipeline, require_sparse
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    EmbeddingPipeline,
    PromptedPipeline,
    embedder_reading,
    find_prompt_name,
    prompt_text,
)
from bert_jax.search.index_manifest import DENSE_ROWS, SPARSE_ROWS, IndexedModel
from bert_jax.search.passages import TokenizerCounter
from bert_jax.search.sparse import MAX_ACTIVE_DIMS, pack_rows
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

IndexModel = str | PathLike[str] | Encoder  # a model's directory, or a model loaded from one


class IndexEncoder:
    """The model of the vectors."""

    flag = "--model"

    def __init__(self, model: IndexModel, **computed: Any):
        self.model = model if isinstance(model, Encoder) else self.open(model, **computed)
        self.directory = directory_of(model)
        self.truncated = TruncationCounter(self.max_length)

    def open(self, path: str | PathLike[str], **computed: Any) -> Encoder:
        return load(path, **computed)

    @property
    def max_length(self) -> int:
        return embedder_reading(self.model).max_length

    @cached_property
    def facts(self) -> IndexedModel:
        texts = self.model.text_settings
        return IndexedModel(
            path=str(self.directory),
            fingerprint=model_fingerprint(self.directory),
            tokenizer=self.model.tokenizer.fingerprint,
            query_prompt=prompt_text(texts, find_prompt_name(texts, QUERY_PROMPTS)),
            document_prompt=prompt_text(texts, find_prompt_name(texts, DOCUMENT_PROMPTS)),
            max_length=self.max_length,
            **self.vector_facts,
        )

    @property
    def vector_facts(self) -> dict[str, Any]:
        """What else determines the vectors."""
        return {
            "pooling": self.model.embedder.pooling,
            "normalize": True,
            "dimensions": self.model.layout.vector_size,
        }

    @property
    def token_counter(self) -> TokenizerCounter:
        return TokenizerCounter(self.model.tokenizer, self.model.text_settings.lower_case)

    def passage_room(self, passage_tokens: int) -> int:
        """Return the number of tokens left for a passage besides the special tokens and the prompt."""
        (before,) = self.model.tokenizer.encode([self.facts.document_prompt])
        return passage_tokens - len(before.input_ids)

    def pipeline(
        self, prompts: Sequence[str] = QUERY_PROMPTS, truncated: TruncationCounter | None = None
    ) -> PromptedPipeline:
        return EmbeddingPipeline(self.model, normalize=True, **self.pipeline_settings(prompts, truncated))

    def pipeline_settings(
        self, prompts: Sequence[str], truncated: TruncationCounter | None
    ) -> dict[str, Any]:
        return {
            "prompt": find_prompt_name(self.model.text_settings, prompts),
            "truncated": truncated or TruncationCounter(self.max_length),
        }

    def encode_documents(self, texts: Sequence[str]) -> Any:
        return self.pipeline(DOCUMENT_PROMPTS, self.truncated)(texts)

    def encode_queries(self, texts: Sequence[str]) -> Any:
        return self.pipeline(QUERY_PROMPTS, TruncationWarner(self.max_length))(texts)


class SparseIndexEncoder(IndexEncoder):
    """The model of the sparse vectors."""

    flag = "--sparse-model"

    def open(self, path: str | PathLike[str], **computed: Any) -> Encoder:
        return SparseEmbedder.load(path, **computed)

    @property
    def vector_facts(self) -> dict[str, Any]:
        settings, entries = require_sparse(self.model), self.model.layout.vector_size
        return {
            "pooling": f"{settings.pooling} of {settings.activation}",
            "normalize": False,
            "dimensions": entries,
            "max_active_dims": min(settings.max_active_dims or MAX_ACTIVE_DIMS, entries),
        }

    def pipeline(
        self, prompts: Sequence[str] = QUERY_PROMPTS, truncated: TruncationCounter | None = None
    ) -> PromptedPipeline:
        settings = self.pipeline_settings(prompts, truncated)
        return SparsePipeline(self.model, max_active_dims=self.facts.max_active_dims, **settings)

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        return pack_rows(super().encode_documents(texts), self.facts.max_active_dims)

    def encode_queries(self, texts: Sequence[str]) -> Iterator[tuple[SparseVector, list[str]]]:
        """Yield the vector of each query, and its tokens."""
        truncated = TruncationWarner(self.max_length)
        embed: Callable[..., Any] = self.pipeline(truncated=truncated)
        if isinstance(self.model, SparseEmbedder) and self.model.layout.has_query_weights:
            settings = self.pipeline_settings(QUERY_PROMPTS, truncated)
            embed = partial(self.model.query_weights.embed, **settings)
        name = self.model.tokenizer.rust.id_to_token
        for vector in embed(texts):
            yield vector, [name(token) or f"[{token}]" for token in vector.ids.tolist()]


ENCODERS = {DENSE_ROWS: IndexEncoder, SPARSE_ROWS: SparseIndexEncoder}


def require_model(model: object, name: str) -> None:
    """Refuse an argument of an index with which the index could not be opened later."""
    if not isinstance(model, Encoder):
        require_path(model, name)
    elif model.directory is None:
        raise BertJaxError(
            f"{name} is not in a directory from which the index can load it later; save it, and give the directory"
        )


def directory_of(model: IndexModel) -> Path:
    return resolve_directory(model.directory if isinstance(model, Encoder) else model).resolve()


def load_encoder(
    kind: type[IndexEncoder], index: Path, facts: IndexedModel, model: IndexModel | None, **computed: Any
) -> IndexEncoder:
    """Load the model that an index was built with, from where it was then or from another directory, to be `computed`
    with these arguments of `load`."""
    if model is None and not Path(facts.path).exists():
        raise BertJaxError(
            f"the model of {index} is no longer at {facts.path}; name its directory with {kind.flag}"
        )
    try:
        encoder = kind(facts.path if model is None else model, **computed)
    except NoOnnxFile as error:
        raise BertJaxError(f"{error}; name OUT with {kind.flag}, or after the index for `serve`") from None
    if replace(encoder.facts, path=facts.path) != facts:
        raise BertJaxError(
            f"{encoder.directory} is not the model that {index} was built with; name that model or what "
            "`export` made of it, which counts as the same if it holds no other weights, or build a new index"
        )
    return encoder
