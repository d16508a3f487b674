"""Score pairs of texts, computing each score only once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bert_jax.inference.model import load
from bert_jax.inference.programs import head_logits
from bert_jax.inference.reranker import check_cross_encoder
from bert_jax.models.heads import HEADS
from bert_jax.predictions.whole_texts import WholeTexts
from bert_jax.search.cache import Cache
from bert_jax.search.cached_vectors import fingerprint
from bert_jax.text.truncation import Reading, Truncated, warn


class CrossEncoder:
    """A cross-encoder, which computes one logit for each pair of texts."""

    def __init__(self, directory):
        self.model = load(directory)
        check_cross_encoder(self.model, directory)
        head = self.model.need(WholeTexts.heads, "--rescore")
        self.program = head_logits(self.model.config, head, 1)
        self.reading = Reading(self.model.config.max_positions, apart=HEADS[head].compares)
        self.truncated = Truncated(self.reading.max_length)

    def of(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        encodings = [encoding for (encoding,) in self.reading.encode(self.model.tokenizer, pairs)]
        self.truncated.count(encodings)
        return np.stack(self.model.run(encodings, self.program))[:, 0]

    @contextmanager
    def warning(self) -> Iterator[None]:
        """Warn at the end of the first block in which pairs were truncated."""
        before = self.truncated.truncated
        yield
        if self.truncated.truncated and not before:
            warn(self.truncated.notice(what="pairs"))


class Scores:
    """The logits of pairs from the cross-encoder in a directory, cached in a folder."""

    def __init__(self, directory, folder: Path):
        self.encoder = CrossEncoder(directory)
        self.cache = Cache(folder, "scores", fingerprint(directory))

    def of(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        with self.encoder.warning():
            return self.cache.of(pairs, self.encoder.of)[:]
