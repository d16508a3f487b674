"""BM25, the yardstick of rankings by vectors: words instead of a model, as bm25s weighs and splits them by default."""

from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.retrieval import highest, order_of_equals


class BM25:
    name = "bm25"

    def nearest(
        self, queries: Sequence[str], documents: Sequence[str], ids: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As retrieval.nearest; documents that share no word with a query are not found."""
        import bm25s

        def words(texts: Sequence[str]) -> list[list[str]]:
            return bm25s.tokenize(list(texts), return_ids=False, show_progress=False)

        index, before = bm25s.BM25(), order_of_equals(ids)
        index.index(words(documents), show_progress=False)
        for query in words(queries):
            scores = index.get_scores(query) if query else np.zeros(len(documents), np.float32)
            order = highest(scores, before)
            order = order[scores[order] > 0]
            yield order, scores[order]
