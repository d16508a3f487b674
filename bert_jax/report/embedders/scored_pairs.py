"""Evaluate on scored pairs of texts: the higher a pair's score, the higher its cosine should be."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from bert_jax.data.examples.groups import Group
from bert_jax.metrics.regression import average_ranks, score_numbers
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.report.embedders.embedder_results import (
    SHOWN,
    EmbedderResults,
    ExampleTable,
    note_duplicates,
    picture_file_name,
    picture_lines,
)
from bert_jax.report.embedders.evaluated_embedder import EmbedderEvalConfig
from bert_jax.report.plots import ACCENT, INK, PALE, finish_axes, save_plot

COLUMNS = 12  # groups of scores, if there are more distinct scores than this


class ScoredPairsData:
    units = "pairs"

    def __init__(self, eval_config: EmbedderEvalConfig, groups: Sequence[Group]):
        self.groups = groups
        self.what = f"{len(groups):,} pairs of {eval_config.data}"
        self.notes = note_duplicates(
            [group.texts for group in groups], [group.where for group in groups], "pairs"
        )

    def measure(self, embedder) -> "CorrelationResults":
        first, notes = embedder.encode_texts([group.texts[0] for group in self.groups], "first texts")
        second, more = embedder.encode_texts([group.texts[1] for group in self.groups], "second texts")
        cosines, scores = (first * second).sum(-1), np.array([group.scores[0] for group in self.groups])
        sums = score_numbers(cosines.tolist(), scores.tolist())
        correlations = ScoreSums(
            sums.rows,
            lambda rows: {name: sums.compute_scores(rows)[name] for name in ("spearman", "pearson")},
        )
        return CorrelationResults(embedder.name, correlations, [*notes, *more], self.groups, scores, cosines)


@dataclass(frozen=True)
class CorrelationResults(EmbedderResults):
    groups: Sequence[Group]
    scores: np.ndarray
    cosines: np.ndarray

    @cached_property
    def rank_gaps(self) -> np.ndarray:
        """How far the rank of each pair's cosine is above the rank of its score, as a share of all pairs."""
        return (average_ranks(self.cosines) - average_ranks(self.scores)) / len(self.scores)

    @property
    def facts(self) -> dict[str, Any]:
        return {"cosines": [round(x, 6) for x in self.cosines.tolist()]}  # in the order of the rows

    def pictures(self, directory: Path, other: Self | None = None) -> list[str]:
        lines: list[str] = []
        for letter, side in self.sides(other).items():
            path = directory / picture_file_name("cosines", letter)
            file = plot_cosines_by_score(path, side.scores, side.cosines)
            lines += picture_lines(f"Cosines {letter}".strip(), "cosine of each pair by its score", file)
        return lines

    @property
    def worst_examples(self) -> ExampleTable:
        rows = [
            (*g.texts, g.scores[0], float(self.cosines[n]), f"{self.rank_gaps[n]:+.0%}", g.where)
            for n in np.argsort(-np.abs(self.rank_gaps), kind="stable")[:SHOWN].tolist()
            for g in [self.groups[n]]
        ]
        return ExampleTable(
            "Worst pairs",
            "The pairs whose place by cosine is farthest from their place by score, as a share of all pairs; +: too "
            "similar.",
            ("first text", "second text", "score", "cosine", "places apart", "where"),
            rows,
        )

    def compare_with(self, other: Self) -> tuple[ExampleTable, ExampleTable]:
        gain = np.abs(self.rank_gaps) - np.abs(other.rank_gaps)

        def shown(title: str, gain: np.ndarray, where: str) -> ExampleTable:
            changed = [n for n in np.argsort(-gain, kind="stable").tolist() if gain[n] > 0]
            rows = [
                (*g.texts, g.scores[0], float(self.cosines[n]), float(other.cosines[n]),
                 f"{self.rank_gaps[n]:+.0%}", f"{other.rank_gaps[n]:+.0%}", g.where)
                for n in changed[:SHOWN] for g in [self.groups[n]]
            ]  # fmt: skip
            note = f"{len(changed):,} of {len(gain):,} pairs are placed {where} their score; the largest changes first."
            header = ("first text", "second text", "score", "cosine of A", "cosine of B", "places apart in A",
                      "places apart in B", "where")  # fmt: skip
            return ExampleTable(title, note, header, rows)

        return shown("Better with B", gain, "nearer to"), shown("Worse with B", -gain, "farther from")


def plot_cosines_by_score(path: Path, scores: np.ndarray, cosines: np.ndarray) -> str:
    """Plot each pair, and the quartiles of the cosines of pairs with about the same score."""
    values = np.unique(scores)
    if len(values) > COLUMNS:
        values = np.linspace(values[0], values[-1], COLUMNS)
    nearest = np.abs(scores[:, None] - values).argmin(1)
    known = [n for n in range(len(values)) if (nearest == n).any()]

    def draw(axes):
        axes.plot(
            scores, cosines, "o", color=ACCENT, alpha=0.3, markersize=3.5, markeredgewidth=0, label="pair"
        )
        low, middle, high = (
            [np.quantile(cosines[nearest == n], q) for n in known] for q in (0.25, 0.5, 0.75)
        )
        axes.fill_between(values[known], low, high, color=PALE, alpha=0.5, linewidth=0, label="middle half")
        axes.plot(values[known], middle, color=INK, linewidth=1.6, label="median")
        finish_axes(axes, "score", "cosine", 3)

    return save_plot(path, (6, 4.2), draw)
