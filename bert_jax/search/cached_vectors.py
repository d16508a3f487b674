"""Vectors of texts and scores of pairs from the models in directories, each computed only once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bert_jax.core.caller_warning import warn_caller
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.inference.computations import HeadLogits
from bert_jax.inference.load import load
from bert_jax.inference.reranker import check_cross_encoder
from bert_jax.inference.text_vectors import (
    EmbeddingPipeline,
    embedder_reading,
    find_prompt_name,
    prompt_text,
)
from bert_jax.models.heads import HEADS
from bert_jax.predictions.whole_text_kind import WholeTextKind
from bert_jax.search.cache import CachedRows, RowCache
from bert_jax.text.truncation import EncodingOptions, TruncationCounter


class CachedEncoder:
    """The unit vectors of texts from the embedder in a directory, cached in a folder."""

    def __init__(self, directory, folder: Path):
        self.model, self.folder = load(directory), folder
        self.embedder = model_fingerprint(directory)

    def encode(self, texts: Sequence[str], prompts: Sequence[str] = ()) -> CachedRows:
        """Return the vectors [N, D] of texts, with the first of these prompts that the embedder has."""
        prompt = find_prompt_name(self.model.embedder, prompts)
        before = prompt_text(self.model.embedder, prompt)
        truncated = TruncationCounter(embedder_reading(self.model).max_length)
        compute = EmbeddingPipeline(self.model, prompt=prompt, normalize=True, truncated=truncated)
        vectors = RowCache(self.folder, "vectors", [self.embedder, before]).get_or_compute(texts, compute)
        if notice := truncated.notice():
            warn_caller(notice)
        return vectors


class CrossEncoder:
    """A cross-encoder, which computes one logit for each pair of texts."""

    def __init__(self, directory):
        self.model = load(directory)
        check_cross_encoder(self.model, directory)
        head = self.model.require_head(WholeTextKind.heads, "--rescore")
        self.wanted = HeadLogits(head, 1)
        self.reading = EncodingOptions(
            self.model.config.max_position_embeddings, separate_texts=HEADS[head].compares
        )
        self.truncated = TruncationCounter(self.reading.max_length)

    def score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        encodings = [encoding for (encoding,) in self.reading.encode(self.model.tokenizer, pairs)]
        self.truncated.count(encodings)
        return np.stack(self.model.run(encodings, self.wanted))[:, 0]

    @contextmanager
    def warn_once(self) -> Iterator[None]:
        """Warn at the end of the first block in which pairs were truncated."""
        before = self.truncated.truncated
        yield
        if self.truncated.truncated and not before:
            warn_caller(self.truncated.notice(what="pairs"))


class CachedPairScorer:
    """The logits of pairs from the cross-encoder in a directory, cached in a folder."""

    def __init__(self, directory, folder: Path):
        self.encoder = CrossEncoder(directory)
        self.cache = RowCache(folder, "scores", model_fingerprint(directory))

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        with self.encoder.warn_once():
            return self.cache.get_or_compute(pairs, self.encoder.score)[:]
