"""BM25, the baseline for ranking by vectors: it matches words, with the default weights and tokenizer of bm25s."""

from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.inference.exact_search import rank_ties, top_k


class BM25:
    name = "bm25"

    def nearest(
        self, queries: Sequence[str], documents: Sequence[str], ids: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield results like retrieval.nearest, but without documents that share no word with the query."""
        import bm25s

        def words(texts: Sequence[str]) -> list[list[str]]:
            return bm25s.tokenize(list(texts), return_ids=False, show_progress=False)

        index, before = bm25s.BM25(), rank_ties(ids)
        index.index(words(documents), show_progress=False)
        for query in words(queries):
            scores = index.get_scores(query) if query else np.zeros(len(documents), np.float32)
            order = top_k(scores, before)
            order = order[scores[order] > 0]
            yield order, scores[order]
