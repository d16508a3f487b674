"""What ranks documents for queries: an embedder, that of an index with the vectors of its documents, or BM25."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.data.examples.group_columns import GroupColumns
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.exact_search import rank_ties, top_k
from bert_jax.inference.load import load
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    EmbeddingPipeline,
    embedder_encoding_options,
    find_prompt_name,
)
from bert_jax.search.cache import KeyIndex, content_keys
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import DENSE_ROWS
from bert_jax.search.keywords import split_words
from bert_jax.search.language import detect_language
from bert_jax.text.truncation import TruncationCounter, windows_advice


@dataclass(frozen=True)
class EmbedderEvalConfig:
    data: str  # a folder in BEIR's layout, or a table
    split: str = ""  # split of a folder's relevance judgements
    columns: GroupColumns = GroupColumns()  # of a table
    dimensions: int | None = None  # to keep of each vector; None keeps all
    long_texts: str = "truncate"


class EvaluatedEmbedder:
    def __init__(self, directory, eval_config: EmbedderEvalConfig):
        self.name, self.eval_config = str(directory), eval_config
        self.model: Encoder = load(directory)

    def encode_texts(
        self, texts: Sequence[str], noun: str = "texts", prompts: Sequence[str] = ()
    ) -> tuple[np.ndarray, list[str]]:
        """Return unit vectors, with the first of these prompts that the model has, and notes for the user."""
        truncated = TruncationCounter(
            embedder_encoding_options(self.model, self.eval_config.long_texts).max_length
        )
        of_chunk = EmbeddingPipeline(
            self.model,
            prompt=find_prompt_name(self.model.embedder, prompts),
            normalize=True,
            dimensions=self.eval_config.dimensions,
            long_texts=self.eval_config.long_texts,
            truncated=truncated,
        )
        vectors = np.stack(map_texts(list(texts), of_chunk))
        notice = truncated.notice(windows_advice(), noun)
        return vectors, [notice] if notice else []


class EvaluatedIndex(EvaluatedEmbedder):
    """The embedder of an index. Vectors of documents that are one passage come from the index."""

    def __init__(self, index: Index, eval_config: EmbedderEvalConfig):
        self.name, self.eval_config, self.index = str(index.path), eval_config, index
        self.model = index.encoder_of(DENSE_ROWS).model

    def encode_texts(
        self, texts: Sequence[str], noun: str = "texts", prompts: Sequence[str] = ()
    ) -> tuple[np.ndarray, list[str]]:
        if prompts != DOCUMENT_PROMPTS or not len(self.index):
            return super().encode_texts(texts, noun, prompts)
        stored = KeyIndex([segment.keys for segment in self.index.segments])
        positions = stored.find(content_keys([text.strip() for text in texts]))
        present, missing = np.flatnonzero(positions >= 0), np.flatnonzero(positions < 0)
        width = self.eval_config.dimensions or self.model.layout.vector_size
        vectors, notes = np.empty((len(texts), width), np.float32), list[str]()
        if len(missing):
            vectors[missing], notes = super().encode_texts(
                [texts[n] for n in missing.tolist()], noun, prompts
            )
        if len(present):
            rows = stored.rows(positions[present], lambda number: self.index.segments[number].vectors)[
                :, :width
            ]
            vectors[present] = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
        return vectors, [f"{len(present):,} of {len(texts):,} vectors of {noun} come from the index", *notes]


class BM25:
    """The baseline for ranking by vectors: it matches the words of an index, with the default weights of bm25s."""

    name = "bm25"

    def nearest(
        self, queries: Sequence[str], documents: Sequence[str], ids: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield results like search_exact, but without documents that share no word with the query."""
        import bm25s

        # It asks for lines of DEBUG, which show where a run has set up logs.
        logging.getLogger("bm25s").setLevel(logging.WARNING)
        language = detect_language(documents)
        index, before = bm25s.BM25(), rank_ties(ids)
        index.index(split_words(documents, language), show_progress=False)
        for query in split_words(queries, language):
            scores = index.get_scores(query) if query else np.zeros(len(documents), np.float32)
            order = top_k(scores, before)
            order = order[scores[order] > 0]
            yield order, scores[order]
