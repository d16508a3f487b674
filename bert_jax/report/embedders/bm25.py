"""BM25, the baseline for ranking by vectors: it matches the words of an index, with the default weights of bm25s."""

from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.inference.exact_search import rank_ties, top_k
from bert_jax.search.keywords import split_words
from bert_jax.search.language import detect_language


class BM25:
    name = "bm25"

    def nearest(
        self, queries: Sequence[str], documents: Sequence[str], ids: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield results like retrieval.nearest, but without documents that share no word with the query."""
        import bm25s

        language = detect_language(documents)
        index, before = bm25s.BM25(), rank_ties(ids)
        index.index(split_words(documents, language), show_progress=False)
        for query in split_words(queries, language):
            scores = index.get_scores(query) if query else np.zeros(len(documents), np.float32)
            order = top_k(scores, before)
            order = order[scores[order] > 0]
            yield order, scores[order]
