"""The documents that a search found for queries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_jax.metrics.retrieval import DEPTH
from bert_jax.metrics.score_sums import ScoreSums

NOT_IN_FOLDER = "(not in the folder)"  # in place of the text of a document


@dataclass(frozen=True)
class SearchResults:
    queries: Sequence[str]  # as shown to the user
    documents: Sequence[str]
    relevant: Sequence[Sequence[int]]  # documents relevant to each query, the most relevant first
    order: Sequence[np.ndarray]  # documents found for each query, the best first, at most DEPTH
    highest: Sequence[float]  # score of the first document found
    name: str = ""

    @classmethod
    def from_rankings(
        cls, queries, documents, relevant, rankings: Iterable[tuple[np.ndarray, np.ndarray]], name=""
    ) -> "SearchResults":
        """Build a search from `ranked`, which has the form of retrieval.nearest's results."""
        order, scores = zip(*rankings, strict=True)
        highest = [float(row[0]) if len(row) else 0.0 for row in scores]
        return cls(queries, documents, relevant, order, highest, name)

    @cached_property
    def hits(self) -> np.ndarray:
        """Whether the document at each rank is relevant, [queries, DEPTH]."""
        hits = np.zeros((len(self.queries), DEPTH), bool)
        for row, order, relevant in zip(hits, self.order, self.relevant, strict=True):
            row[: len(order)] = np.isin(order[:DEPTH], relevant)
        return hits

    @cached_property
    def first_ranks(self) -> np.ndarray:
        """The rank of each query's first relevant document; DEPTH + 1 if none is among the first DEPTH."""
        return np.where(self.hits.any(1), self.hits.argmax(1) + 1, DEPTH + 1)

    @property
    def recall(self) -> ScoreSums:
        """The recall at each depth."""
        counts = np.array([len(relevant) for relevant in self.relevant])
        rows = np.column_stack([self.hits.cumsum(1) / counts[:, None], np.ones(len(counts))])
        return ScoreSums(rows, lambda sums: {str(k + 1): sums[..., k] / sums[..., -1] for k in range(DEPTH)})

    def relevant_document(self, query: int) -> str:
        """Return the first relevant document found, or the most relevant one if none was found."""
        place = self.first_ranks[query]
        if place > DEPTH:
            return self.documents[self.relevant[query][0]]
        return self.documents[self.order[query][place - 1]]

    def describe_rank(self, query: int) -> str:
        place = self.first_ranks[query]
        return str(place) if place <= DEPTH else f"not in the first {DEPTH}"

    def top_document(self, query: int) -> str:
        order = self.order[query]
        return self.documents[order[0]] if len(order) else "nothing"
