"""The results of retrieval by an embedder: documents for queries, or translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from bert_jax.report.embedders import embedder_plots
from bert_jax.report.embedders.cosines import Cosines
from bert_jax.report.embedders.embedder_results import (
    SHOWN,
    EmbedderResults,
    ExampleTable,
    ReportPicture,
    picture_file_name,
)
from bert_jax.report.embedders.search_results import SearchResults


@dataclass(frozen=True)
class RetrievalResults(EmbedderResults):
    searches: Sequence[SearchResults]
    cosines: Cosines | None  # None for BM25, which has no vectors
    quality: Sequence[np.ndarray]  # for each search, the quality of each query; higher is better
    measure: str  # the name of the quality measure
    noun: str = "relevant document"

    @property
    def facts(self) -> dict[str, Any]:
        recall = {search.name: [*search.recall.scores.values()] for search in self.searches}
        cosines = {"cosines": self.cosines.facts} if self.cosines else {}
        return {"recall_by_depth": recall if len(recall) > 1 else recall[self.searches[0].name], **cosines}

    def pictures(self, directory: Path, other: Self | None = None) -> list[ReportPicture]:
        sides = self.sides(other)
        curves = {
            ", ".join(filter(None, (letter, letter and Path(side.name).name, search.name))): search.recall
            for letter, side in sides.items()
            for search in side.searches
        }
        what = f"recall: share of the {self.noun}s found"
        file = embedder_plots.plot_recall(directory / "recall.png", curves, what)
        drawn = [ReportPicture("Recall by depth", what, file)]
        for letter, side in sides.items():
            if side.cosines:
                file = embedder_plots.plot_cosines(
                    directory / picture_file_name("cosines", letter), side.cosines
                )
                title, what = f"Cosines {letter}".strip(), f"cosines of {self.noun}s and of random ones"
                drawn.append(ReportPicture(title, what, file, side.cosines.description))
        return drawn

    @property
    def worst_examples(self) -> ExampleTable:
        """The queries of lowest quality; ties: the worst place of a relevant text first, then the highest top score."""
        keys = [
            (value, -place, -search.highest[q], s, q)
            for s, (search, quality) in enumerate(zip(self.searches, self.quality, strict=True))
            for q, (value, place) in enumerate(
                zip(quality.tolist(), search.first_ranks.tolist(), strict=True)
            )
        ]
        rows = []
        for value, _, _, s, q in sorted(keys)[:SHOWN]:
            search = self.searches[s]
            rows.append(
                (
                    search.queries[q],
                    search.relevant_document(q),
                    search.describe_rank(q),
                    search.top_document(q),
                    value,
                )
            )
        return ExampleTable(
            "Worst queries",
            f"The {len(rows)} of {len(keys):,} queries with the lowest {self.measure}; ties: the lowest-ranked "
            f"{self.noun} first.",
            ("query", self.noun, "its place", "ranked first", self.measure),
            rows,
        )

    def compare_with(self, other: Self) -> tuple[ExampleTable, ExampleTable]:
        keys = [
            (after - before, s, q)
            for s, sides in enumerate(zip(self.quality, other.quality, strict=True))
            for q, (before, after) in enumerate(zip(*(side.tolist() for side in sides), strict=True))
        ]

        def shown(title: str, sign: int) -> ExampleTable:
            changed = sorted((-sign * gap, s, q) for gap, s, q in keys if sign * gap > 0)
            rows = []
            for _, s, q in changed[:SHOWN]:
                before, after = self.searches[s], other.searches[s]
                rows.append(
                    (
                        before.queries[q],
                        self.quality[s][q].item(),
                        other.quality[s][q].item(),
                        before.describe_rank(q),
                        after.describe_rank(q),
                        before.top_document(q),
                        after.top_document(q),
                    )
                )
            note = (
                f"{len(changed):,} of {len(keys):,} queries; the largest differences of {self.measure} first."
            )
            header = (
                "query",
                f"{self.measure} of A",
                "of B",
                f"place of the first {self.noun} in A",
                "in B",
                "ranked first by A",
                "ranked first by B",
            )
            return ExampleTable(title, note, header, rows)

        return shown("Better with B", 1), shown("Worse with B", -1)
