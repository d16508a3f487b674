"""Evaluate on queries and documents: a folder in BEIR's layout. The results are also those of translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from bert_jax.data.examples.beir import CORPUS, read_beir
from bert_jax.inference.exact_search import search_exact
from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS
from bert_jax.metrics import retrieval
from bert_jax.report.embedders.embedder_results import (
    SHOWN,
    EmbedderResults,
    ExampleTable,
    note_duplicates,
    picture_file_name,
    picture_lines,
)
from bert_jax.report.embedders.evaluated_embedder import BM25, EmbedderEvalConfig, EvaluatedEmbedder
from bert_jax.report.embedders.search_results import SearchResults, plot_recall
from bert_jax.report.out_of_scope_detection import area_under_curve
from bert_jax.report.plots import ACCENT, finish_axes, save_plot

DRAWN = 10_000  # at most this many pairs of matching texts, and of random ones
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 60


class RetrievalData:
    units = "queries"

    def __init__(self, eval_config: EmbedderEvalConfig):
        self.judged = read_beir(eval_config.data, eval_config.split)
        documents = self.judged.documents
        self.what = (
            f"{len(self.judged.queries):,} queries and {len(documents):,} documents of {eval_config.data}"
        )
        kept = {name: text for name, text in documents.items() if text.strip()}
        self.notes = note_duplicates([*kept.values()], [*kept], "documents")
        if empty := len(documents) - len(kept):
            self.notes.append(f"{empty:,} of {len(documents):,} documents are empty")
        self.notes += self.judged.note_missing(documents, CORPUS, "give both files the same ids")

    def measure(self, embedder: EvaluatedEmbedder | BM25) -> "RetrievalResults":
        judged, notes, cosines, vectors = self.judged, [], None, None
        ids, texts, queries = [*judged.documents], [*judged.documents.values()], [*judged.queries.values()]
        if isinstance(embedder, BM25):
            ranked = embedder.nearest(queries, texts, ids)
        else:
            documents, document_notes = embedder.encode_texts(texts, "documents", DOCUMENT_PROMPTS)
            vectors, query_notes = embedder.encode_texts(queries, "queries", QUERY_PROMPTS)
            notes = [*document_notes, *query_notes]
            ranked = search_exact(vectors, documents, ids)
        order, scores = zip(*ranked, strict=True)
        rankings = [[ids[n] for n in best] for best in order]
        shown = [f"{name}: {text}" for name, text in judged.queries.items()]
        search = SearchResults.from_ids(judged, shown, rankings, scores=scores)
        if vectors is not None:
            held = [[n for n in some if n < len(texts)] for some in search.relevant]
            cosines = Cosines.from_vectors(vectors, documents, held, "relevant document")
        sums = retrieval.ranking_metrics(rankings, [*judged.relevant.values()])
        quality = sums.compute_scores(sums.rows)[retrieval.MAIN_METRIC]
        return RetrievalResults(
            embedder.name, sums, notes, [search], cosines, [quality], retrieval.MAIN_METRIC
        )


@dataclass(frozen=True)
class Cosines:
    """The cosines of matching pairs, and of random pairs."""

    right: np.ndarray
    random: np.ndarray
    noun: str  # what a query's match is called

    @classmethod
    def from_vectors(
        cls, queries: np.ndarray, documents: np.ndarray, relevant: Sequence[Sequence[int]], noun: str
    ) -> "Cosines":
        rng = np.random.default_rng(0)
        right = np.array([(q, d) for q, those in enumerate(relevant) for d in those])
        if len(right) > DRAWN:
            right = right[np.sort(rng.choice(len(right), DRAWN, replace=False))]
        matches_by_query = [set(those) for those in relevant]
        drawn = rng.integers((len(queries), len(documents)), size=(DRAWN, 2))
        random = np.array([(q, d) for q, d in drawn.tolist() if d not in matches_by_query[q]], int).reshape(
            -1, 2
        )
        matching_cosines, random_cosines = (
            (queries[pairs[:, 0]] * documents[pairs[:, 1]]).sum(-1) for pairs in (right, random)
        )
        return cls(matching_cosines, random_cosines, noun)

    @property
    def facts(self) -> dict[str, Any]:
        sides = {"right": self.right, "random": self.random}
        quantiles = {
            name: {str(q): float(np.quantile(values, q)) for q in QUANTILES}
            for name, values in sides.items()
            if len(values)
        }
        return {"quantiles": quantiles, "right_above_random": self.matching_above_random}

    @property
    def matching_above_random(self) -> float | None:
        """The probability that a matching pair's cosine exceeds a random pair's; None if there are no random pairs."""
        return area_under_curve(self.right, self.random) if len(self.random) else None

    @property
    def description(self) -> str:
        if self.matching_above_random is None:
            return f"The median cosine with a {self.noun} is {np.median(self.right):.3f}."
        return (
            f"The median cosine with a {self.noun} is {np.median(self.right):.3f}, with a random one "
            f"{np.median(self.random):.3f}; the former is higher in {self.matching_above_random:.1%} of cases."
        )


def plot_cosines(path: Path, given: Cosines) -> str:
    every = np.concatenate([given.right, given.random])
    edges = np.linspace(every.min(), max(every.max(), every.min() + 1e-6), BINS + 1)
    sides = {f"{given.noun}s": (given.right, "#d95f02", "-"), "random ones": (given.random, ACCENT, "--")}

    def draw(axes):
        for name, (values, color, stroke) in sides.items():
            weights = np.full(len(values), 1 / max(len(values), 1))
            label = f"{name}: {len(values):,} pairs"
            axes.hist(values, edges, weights=weights, color=color, alpha=0.2)
            axes.hist(values, edges, weights=weights, color=color, linestyle=stroke, histtype="step",
                      linewidth=1.5, label=label)  # fmt: skip
        finish_axes(axes, "cosine", "share of the pairs", 2)

    return save_plot(path, (6, 3.4), draw)


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

    def pictures(self, directory: Path, other: Self | None = None) -> list[str]:
        sides = self.sides(other)
        curves = {
            ", ".join(filter(None, (letter, letter and Path(side.name).name, search.name))): search.recall
            for letter, side in sides.items()
            for search in side.searches
        }
        what = f"recall: share of the {self.noun}s found"
        file = plot_recall(directory / "recall.png", curves, what)
        lines = picture_lines("Recall by depth", what, file)
        for letter, side in sides.items():
            if side.cosines:
                file = plot_cosines(directory / picture_file_name("cosines", letter), side.cosines)
                title, what = f"Cosines {letter}".strip(), f"cosines of {self.noun}s and of random ones"
                lines += picture_lines(title, what, file, side.cosines.description)
        return lines

    @property
    def worst_examples(self) -> ExampleTable:
        """The queries of lowest quality; ties: the worst place of a relevant text first, then the highest top score."""
        keys = [
            (value, -position, -search.highest_score(q), s, q)
            for s, (search, quality) in enumerate(zip(self.searches, self.quality, strict=True))
            for q, (value, position) in enumerate(
                zip(quality.tolist(), search.first_ranks.tolist(), strict=True)
            )
        ]
        rows = [(*self.searches[s].describe_query(q), value) for value, _, _, s, q in sorted(keys)[:SHOWN]]
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
