"""Score pairs of texts, computing each score only once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bert_jax.core.caller_warning import warn_caller
from bert_jax.inference.computations import HeadLogits
from bert_jax.inference.load import load
from bert_jax.inference.reranker import check_cross_encoder
from bert_jax.models.heads import HEADS
from bert_jax.predictions.whole_text_kind import WholeTextKind
from bert_jax.search.cache import RowCache
from bert_jax.search.cached_vectors import model_fingerprint
from bert_jax.text.truncation import EncodingOptions, TruncationCounter


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
