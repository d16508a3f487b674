"""The models of an index: they compute the rows of documents and queries, and measure passages in tokens."""

import re
from bisect import bisect_right
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
from bert_jax.hub.multi_vector_encoder import DOCUMENT, QUERY
from bert_jax.hub.onnx_files import NoOnnxFile
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS
from bert_jax.inference.computations import SparseVector
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.inference.m3_embedder import M3Embedder
from bert_jax.inference.multi_vector_embedder import MultiVectorEmbedder
from bert_jax.inference.sparse_embedder import SparseEmbedder
from bert_jax.inference.sparse_vectors import SparsePipeline, require_sparse
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    EmbeddingPipeline,
    PromptedPipeline,
    embedder_encoding_options,
    find_prompt_name,
    prompt_text,
)
from bert_jax.inference.token_vectors import TokenVectorPipeline, require_multi_vector
from bert_jax.search.index_manifest import DENSE_ROWS, SPARSE_ROWS, TOKEN_ROWS, IndexedModel
from bert_jax.search.late_interaction import TokenQuery, inverse_lengths, to_whole_numbers
from bert_jax.search.passages import TokenizerCounter
from bert_jax.search.ragged_rows import stack_ragged
from bert_jax.search.sparse import MAX_ACTIVE_DIMS, pack_rows
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

WORD = re.compile(r"\w+|[^\w\s]")
IndexModel = str | PathLike[str] | Encoder  # a model's directory, or a model loaded from one


class IndexEncoder:
    """The model of the vectors."""

    flag = "--model"
    of_m3 = ""  # the attribute of an M3Embedder that gives these vectors; "": the model itself does

    def __init__(self, model: IndexModel, pool_factor: float | None = None, **computed: Any):
        if isinstance(model, M3Embedder) and self.of_m3:
            model = getattr(model, self.of_m3)
        self.model = model if isinstance(model, Encoder) else self.open(model, **computed)
        self.source = model.directory if isinstance(model, Encoder) else model
        self.pool_factor = None if pool_factor is None else float(pool_factor)
        self.truncated = TruncationCounter(self.max_length)

    @cached_property
    def directory(self) -> Path:
        return resolve_directory(self.source).resolve()

    def is_model_of(self, facts: IndexedModel | None) -> bool:
        """Whether these facts, of an index, are those of this model."""
        if facts is None or self.source is None:
            return False
        return replace(self.facts, path=facts.path) == facts

    def open(self, path: str | PathLike[str], **computed: Any) -> Encoder:
        return load(path, **computed)

    @property
    def max_length(self) -> int:
        return embedder_encoding_options(self.model).max_length

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
            pool_factor=self.pool_factor,
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

    flag, of_m3 = "--sparse-model", "sparse_embedder"

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
        if isinstance(self.model, SparseEmbedder) and QUERY_WEIGHTS in self.model.layout.module_names:
            settings = self.pipeline_settings(QUERY_PROMPTS, truncated)
            embed = partial(self.model.query_weights.embed, **settings)
        name = self.model.tokenizer.rust.id_to_token
        for vector in embed(texts):
            yield vector, [name(token) or f"[{token}]" for token in vector.ids.tolist()]


class TokenIndexEncoder(IndexEncoder):
    """The model of the token vectors."""

    flag, of_m3 = "--multi-vector-model", "multi_vector_embedder"

    def __init__(self, model: IndexModel, pool_factor: float | None = None, **computed: Any):
        super().__init__(model, pool_factor, **computed)
        settings = require_multi_vector(self.model)
        pools_lengths = pool_factor is None and settings.pooling and not settings.pooling.normalize
        if not settings.normalize or pools_lengths:
            raise BertJaxError(
                f"{self.source or 'this model'} has token vectors of different lengths, and here they have length 1; "
                "add a Normalize module to its modules.json"
            )

    def open(self, path: str | PathLike[str], **computed: Any) -> Encoder:
        return MultiVectorEmbedder.load(path, **computed)

    @property
    def max_length(self) -> int:
        settings = require_multi_vector(self.model)
        return settings.longest(DOCUMENT, self.model.config.max_position_embeddings)

    @property
    def vector_facts(self) -> dict[str, Any]:
        return {
            "pooling": require_multi_vector(self.model).similarity,
            "normalize": True,
            "dimensions": self.model.layout.vector_size,
        }

    def pipeline(
        self, prompts: Sequence[str] = QUERY_PROMPTS, truncated: TruncationCounter | None = None
    ) -> TokenVectorPipeline:
        task = DOCUMENT if prompts == DOCUMENT_PROMPTS else QUERY
        return TokenVectorPipeline(self.model, task, pool_factor=self.pool_factor, truncated=truncated)

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        return stack_ragged([*map(to_whole_numbers, super().encode_documents(texts))])

    def encode_queries(self, texts: Sequence[str]) -> Iterator[TokenQuery]:
        pipeline = self.pipeline()
        is_mean = require_multi_vector(self.model).similarity == "meanmaxsim"
        for text, vectors in zip(texts, pipeline(texts), strict=True):
            scaled = vectors / len(vectors) if is_mean else vectors
            yield TokenQuery(scaled, token_names(pipeline, text))

    def passage_words(self, text: str, stored: np.ndarray) -> list[str]:
        """Return the words that each stored vector of a passage stands for; of pooled vectors, those of all tokens to
        which it is nearest."""
        uncounted = TruncationCounter(self.max_length)
        pipeline = TokenVectorPipeline(self.model, DOCUMENT, pool_factor=1, truncated=uncounted)
        words = compared_words(pipeline, text)
        if len(words) == len(stored):
            return words
        (vectors,) = pipeline([text])
        numbers = stored.astype(np.float32)
        nearest = (vectors @ (numbers * inverse_lengths(numbers)[:, None]).T).argmax(1).tolist()
        groups = (
            [word for word, position in zip(words, nearest, strict=True) if position == n]
            for n in range(len(stored))
        )
        return ["+".join(dict.fromkeys(group)) for group in groups]


def token_names(pipeline: TokenVectorPipeline, text: str) -> list[str]:
    """Return the names of the tokens of a text that are compared."""
    (row,) = pipeline.preprocess([text]).rows
    name = pipeline.model.tokenizer.rust.id_to_token
    return [
        name(number) or f"[{number}]"
        for number, kept in zip(row.input_ids, pipeline.is_compared(row.input_ids), strict=True)
        if kept
    ]


def compared_words(pipeline: TokenVectorPipeline, text: str) -> list[str]:
    """Return, for each token of a text that is compared, the word in which it stands, or the token that is not of the
    text."""
    (row,) = pipeline.preprocess([text]).rows
    before, names = len(pipeline.before), iter(token_names(pipeline, text))
    words = [(match.start(), match.end(), match[0]) for match in WORD.finditer(text)]
    of_tokens = []
    for (start, end), kept in zip(row.offsets, pipeline.is_compared(row.input_ids), strict=True):
        if kept:
            name = next(names)
            position = bisect_right(words, (start - before, len(text) + 1, "")) - 1
            in_word = start < end and position >= 0 and start - before < words[position][1]
            of_tokens.append(words[position][2] if in_word else name)
    return of_tokens


ENCODERS = {DENSE_ROWS: IndexEncoder, SPARSE_ROWS: SparseIndexEncoder, TOKEN_ROWS: TokenIndexEncoder}


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
    encoder_class: type[IndexEncoder],
    index: Path,
    facts: IndexedModel,
    model: IndexModel | None,
    **computed: Any,
) -> IndexEncoder:
    """Load the model that an index was built with, from where it was then or from another directory, to be `computed`
    with these arguments of `load`."""
    if model is None and not Path(facts.path).exists():
        raise BertJaxError(
            f"the model of {index} is no longer at {facts.path}; name its directory with {encoder_class.flag}"
        )
    try:
        encoder = encoder_class(facts.path if model is None else model, facts.pool_factor, **computed)
    except NoOnnxFile as error:
        raise BertJaxError(
            f"{error}; name OUT with {encoder_class.flag}, or after the index for `serve`"
        ) from None
    if not encoder.is_model_of(facts):
        raise BertJaxError(
            f"{encoder.directory} is not the model that {index} was built with; name that model or what "
            "`export` made of it, which counts as the same if it holds no other weights, or build a new index"
        )
    return encoder
