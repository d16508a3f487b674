"""Rerank the passages that a search found: by a cross-encoder, or by the token vectors of a multi-vector embedder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.paths import require_path
from bert_jax.search.fusion import PassagePosition, Ranked
from bert_jax.search.index_manifest import TOKEN_ROWS
from bert_jax.search.index_reader import AnyPath, IndexReader
from bert_jax.search.late_interaction import TokenQuery
from bert_jax.search.ragged_rows import RaggedRows
from bert_jax.search.segment import Segment
from bert_jax.text.truncation import TruncationCounter

if TYPE_CHECKING:  # imported only where they are used: what builds models
    from bert_jax.inference.encoder import Encoder
    from bert_jax.search.index_encoder import TokenIndexEncoder


def load_reranker(index: IndexReader, reranker: "AnyPath | Encoder") -> "Encoder":
    """Return a reranker that is given as it is or by its directory; those of an index are loaded once."""
    from bert_jax.inference.encoder import Encoder
    from bert_jax.inference.load import load
    from bert_jax.inference.reranker import check_cross_encoder

    name = "reranker" if isinstance(reranker, Encoder) else str(require_path(reranker, "reranker"))
    model = reranker if isinstance(reranker, Encoder) else index.rerankers.get(name)
    if model is None:
        model = load(name, **index.computed)
    if model.layout.multi_vector is None:
        check_cross_encoder(model, name)
    if not isinstance(reranker, Encoder):
        index.rerankers[name] = model
    return model


def open_ranker(index: IndexReader, model: "Encoder") -> "CrossEncoderRanker | TokenRanker":
    if model.layout.multi_vector is None:
        return CrossEncoderRanker(index, model)
    return TokenRanker(index, model)


class CrossEncoderRanker:
    def __init__(self, index: IndexReader, model: "Encoder"):
        self.index, self.model = index, model
        self.truncated = TruncationCounter(model.config.max_position_embeddings)

    def rank(self, query: str, positions: Sequence[PassagePosition]) -> Ranked:
        from bert_jax.inference.reranker import rank_documents

        texts = [self.index.segments[segment].search_text(passage) for segment, passage in positions]
        ranked = rank_documents(self.model, query, texts, truncated=self.truncated)
        return {positions[number]: score for number, score in ranked}, None

    def warn(self) -> None:
        """Warn of what was truncated."""
        if self.truncated.truncated:
            warn_caller(self.truncated.notice(what="pairs of a query and a passage"))


class TokenRanker:
    """Scores by the token vectors that the index has of this model, or else computes those of the passages."""

    def __init__(self, index: IndexReader, model: "Encoder"):
        from bert_jax.search.index_encoder import TokenIndexEncoder

        facts, pool_factor = index.manifest.multi_vector_model, index.manifest.pool_factor
        if (encoder := index.rankers.get(model)) is None or encoder.pool_factor != pool_factor:
            encoder = index.rankers[model] = TokenIndexEncoder(model, pool_factor)
        self.index, self.encoder = index, encoder
        self.is_stored = encoder.is_model_of(facts)
        if not self.is_stored and pool_factor:
            self.encoder = TokenIndexEncoder(model)

    def rank(self, query: str, positions: Sequence[PassagePosition]) -> Ranked:
        if not positions:
            return {}, None
        (of_query,) = self.encoder.encode_queries([query])
        rows = {} if self.is_stored else self.encode(positions)
        joined = RaggedRows.join(
            [*rows.values()] if rows else [self.stored_rows(position) for position in positions]
        )
        scores = of_query.score(joined, np.arange(len(positions)))
        ranking = self.index.sort_passages(dict(zip(positions, scores.tolist(), strict=True)))
        return ranking, MatchedQuery(of_query, self.index.segments, self.encoder, rows)

    def stored_rows(self, position: PassagePosition) -> np.ndarray:
        return self.index.segments[position[0]].rows[TOKEN_ROWS][position[1]]

    def encode(self, positions: Sequence[PassagePosition]) -> dict[PassagePosition, np.ndarray]:
        texts = [self.index.segments[segment].search_text(passage) for segment, passage in positions]
        return dict(zip(positions, self.encoder.encode_documents(texts), strict=True))

    def warn(self) -> None:
        truncated = self.encoder.truncated
        if truncated.truncated:
            warn_caller(truncated.notice(what="passages"))
        self.encoder.truncated = TruncationCounter(truncated.max_length)


@dataclass(frozen=True)
class MatchedQuery:
    """A query, and what explains its scores: the token vectors of passages, and the words that these stand for."""

    query: TokenQuery
    segments: Sequence[Segment]
    encoder: "TokenIndexEncoder"
    # The token vectors of passages, if they are not those of the segments.
    rows: Mapping[PassagePosition, np.ndarray] = field(default_factory=dict)

    def explain(self, segment: int, passage: int) -> dict[str, float]:
        """Return which word of a passage each token of the query matched, and what that adds to the score."""
        tokens, added = self.rows.get((segment, passage)), dict[str, float]()
        if tokens is None:
            tokens = self.segments[segment].rows[TOKEN_ROWS][passage]
        if len(tokens):
            words = self.encoder.passage_words(self.segments[segment].search_text(passage), tokens)
            for token, of_token in zip(self.query.tokens, self.query.products(tokens), strict=True):
                match = f"{token} → {words[int(of_token.argmax())]}"
                added[match] = added.get(match, 0.0) + float(of_token.max())
        return added
