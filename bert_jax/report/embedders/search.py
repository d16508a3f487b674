"""What was found for some texts among others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_jax.metrics import Sums
from bert_jax.retrieval import DEPTH


@dataclass(frozen=True)
class Search:
    queries: Sequence[str]  # as people read them
    documents: Sequence[str]
    relevant: Sequence[Sequence[int]]  # documents of each query, those first that matter most
    order: Sequence[np.ndarray]  # documents that were found for each, the best first, DEPTH at most
    highest: Sequence[float]  # score of the first of them
    name: str = ""

    @classmethod
    def of(
        cls, queries, documents, relevant, ranked: Iterable[tuple[np.ndarray, np.ndarray]], name=""
    ) -> "Search":
        """`ranked` as of retrieval.nearest."""
        order, scores = zip(*ranked, strict=True)
        highest = [float(row[0]) if len(row) else 0.0 for row in scores]
        return cls(queries, documents, relevant, order, highest, name)

    @cached_property
    def hits(self) -> np.ndarray:
        """[queries, DEPTH] of whether the document in this place is relevant."""
        hits = np.zeros((len(self.queries), DEPTH), bool)
        for row, order, relevant in zip(hits, self.order, self.relevant, strict=True):
            row[: len(order)] = np.isin(order[:DEPTH], relevant)
        return hits

    @cached_property
    def places(self) -> np.ndarray:
        """Of the first relevant document of each query; DEPTH + 1 where none is among the first DEPTH."""
        return np.where(self.hits.any(1), self.hits.argmax(1) + 1, DEPTH + 1)

    @property
    def recall(self) -> Sums:
        """At each depth."""
        counts = np.array([len(relevant) for relevant in self.relevant])
        rows = np.column_stack([self.hits.cumsum(1) / counts[:, None], np.ones(len(counts))])
        return Sums(rows, lambda sums: {str(k + 1): sums[..., k] / sums[..., -1] for k in range(DEPTH)})

    def right(self, query: int) -> str:
        """The relevant document that was found first, or else the one that matters most."""
        place = self.places[query]
        if place > DEPTH:
            return self.documents[self.relevant[query][0]]
        return self.documents[self.order[query][place - 1]]

    def place(self, query: int) -> str:
        place = self.places[query]
        return str(place) if place <= DEPTH else f"not in the first {DEPTH}"

    def first(self, query: int) -> str:
        order = self.order[query]
        return self.documents[order[0]] if len(order) else "nothing"
