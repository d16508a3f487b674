"""Draw the pictures of an embedder's report, in the style of report/plots.py."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_jax.metrics.intervals import bootstrap_intervals
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.report.embedders.cosines import Cosines
from bert_jax.report.plots import ACCENT, INK, PALE, STROKES, finish_axes, save_plot

TICKS = (1, 2, 3, 5, 10, 20, 30, 50, 100)
BINS = 60
COLUMNS = 12  # groups of scores, if there are more distinct scores than this


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
