"""The documents that a search found for queries, and their recall by depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bert_jax.data.examples.beir import BeirDataset
from bert_jax.metrics.intervals import bootstrap_intervals
from bert_jax.metrics.retrieval import DEPTH
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.report.plots import STROKES, finish_axes, save_plot

NOT_IN_FOLDER = "(not in the folder)"  # in place of the text of a document
TICKS = (1, 2, 3, 5, 10, 20, 30, 50, 100)


@dataclass(frozen=True)
class SearchResults:
    queries: Sequence[str]  # as shown to the user
    documents: Sequence[str]
    relevant: Sequence[Sequence[int]]  # documents relevant to each query, the most relevant first
    order: Sequence[np.ndarray]  # documents found for each query, the best first, at most DEPTH
    scores: Sequence[np.ndarray] = ()  # of these documents
    name: str = ""

    @classmethod
    def from_ids(
        cls, judged: BeirDataset, queries: Sequence[str], ids: Sequence[Sequence[str]], name="", scores=()
    ) -> "SearchResults":
        """Build a search from the ids of the documents found for each query; they need not be in the folder."""
        known, grades = judged.documents, judged.relevant.values()
        texts = known | {n: NOT_IN_FOLDER for some in (*ids, *grades) for n in some if n not in known}
        index_of = {document: n for n, document in enumerate(texts)}
        relevant = [
            [index_of[n] for n, grade in sorted(some.items(), key=lambda item: -item[1]) if grade > 0]
            for some in grades
        ]
        order = [np.array([index_of[n] for n in of_query], int) for of_query in ids]
        return cls(queries, [f"{n}: {text}" for n, text in texts.items()], relevant, order, scores, name)

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
        rank = self.first_ranks[query]
        if rank > DEPTH:
            return self.documents[self.relevant[query][0]]
        return self.documents[self.order[query][rank - 1]]

    def describe_rank(self, query: int) -> str:
        rank = self.first_ranks[query]
        return str(rank) if rank <= DEPTH else f"not in the first {DEPTH}"

    def describe_query(self, query: int) -> tuple[str, str, str, str]:
        """Return a query, a document that is relevant to it, the rank of that, and the first document found."""
        rank, top = self.describe_rank(query), self.top_document(query)
        return self.queries[query], self.relevant_document(query), rank, top

    def highest_score(self, query: int) -> float:
        """Return the score of the first document found, 0 if there is none."""
        return float(self.scores[query][0]) if len(self.scores[query]) else 0.0

    def top_document(self, query: int) -> str:
        order = self.order[query]
        return self.documents[order[0]] if len(order) else "nothing"


def plot_recall(path: Path, curves: Mapping[str, ScoreSums], what: str) -> str:
    """Plot the recall at each depth, from 1 on, with its 95 % interval."""

    def draw(axes):
        for (name, sums), (color, stroke) in zip(curves.items(), STROKES, strict=False):
            curve = [*bootstrap_intervals(sums).values()]
            depths = np.arange(1, len(curve) + 1)
            low, high = ([getattr(point, edge) for point in curve] for edge in ("low", "high"))
            axes.fill_between(depths, low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(depths, [point.value for point in curve], color=color, linestyle=stroke, linewidth=1.6,
                      label=f"{name or 'recall'}, 95 % interval")  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(TICKS, [str(tick) for tick in TICKS])
        axes.minorticks_off()
        axes.set_xlim(1, depths[-1])
        axes.set_ylim(0, 1.02)
        finish_axes(axes, "depth: number of texts, best first", what, 1)

    return save_plot(path, (6, 4.2), draw)
