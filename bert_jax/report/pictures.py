"""The pictures of a report. Dark on white; what differs in colour differs in marks, strokes or hatching too."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_jax.output import replacing
from bert_jax.predictions.fitting import BINS
from bert_jax.predictions.view import View
from bert_jax.report.facts import Facts
from bert_jax.report.intervals import Interval

INK, PALE, ACCENT = "#1a1a1a", "#9ecae1", "#08519c"
STROKES = [("#08519c", "-"), ("#d95f02", "--"), ("#1b7837", "-."), ("#762a83", ":"), ("#7f3b08", (0, (5, 1, 1, 1))),
           ("#525252", (0, (1, 1)))]  # fmt: skip
HATCHES = ("", "////", "....", "xx")
MOST = 20  # labels in a confusion matrix or a bar chart
WIDEST = 26  # letters of a label


def drawn(path: Path, size: tuple[float, float], draw: Callable) -> str:
    """Write what `draw(axes)` draws; return the file's name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(facecolor="white")
    axes.tick_params(labelsize=8)
    draw(axes)
    with replacing(path) as new:
        figure.savefig(new, format="png", dpi=110, bbox_inches="tight")
    return path.name


def above(axes, columns: int) -> None:
    """The legend, where it covers nothing."""
    axes.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns)


def labelled(axes, x: str, y: str, limits: tuple[float, float] = (0, 1.03)) -> None:
    """Axes of shares."""
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(*limits)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    above(axes, 2)


def short(label: str) -> str:
    return label if len(label) <= WIDEST else label[: WIDEST - 1] + "…"


def scores(path: Path, intervals: Mapping[str, Interval]) -> str:
    names = [name for name in intervals if name != "mean_squared_error"]

    def draw(axes):
        for place, name in enumerate(reversed(names)):
            interval = intervals[name]
            axes.plot([interval.low, interval.high], [place, place], color=ACCENT, linewidth=5, alpha=0.35)
            axes.plot(interval.value, place, "o", color=INK, markersize=5)
            axes.annotate(f"{interval.value:.3f}", (interval.value, place), (0, 7), fontsize=8, ha="center",
                          textcoords="offset points")  # fmt: skip
        axes.set_yticks(range(len(names)), [short(name.replace("_", " ")) for name in reversed(names)])
        axes.set_ylim(-0.6, len(names) - 0.3)
        axes.grid(axis="x", color="0.9")
        axes.set_xlabel("score with its 95 % interval", fontsize=8)

    return drawn(path, (6, 1 + 0.45 * len(names)), draw)


def confusion(path: Path, counts: np.ndarray, labels: Sequence[str]) -> str:
    size = len(labels)

    def draw(axes):
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.3)
        for row, column in np.ndindex(size, size):
            if counts[row, column]:
                light = "white" if shares[row, column] > 0.7 else INK
                axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center",
                          fontsize=9 if size < 8 else 6, color=light)  # fmt: skip
        axes.set_xticks(range(size), map(short, labels), rotation=90 if size > 4 else 0, fontsize=8)
        axes.set_yticks(range(size), map(short, labels), fontsize=8)
        axes.set_xlabel("predicted", fontsize=9)
        axes.set_ylabel("true", fontsize=9)

    return drawn(path, (2.2 + 0.42 * size,) * 2, draw)


def reliability(path: Path, view: View, calibrated: bool) -> str:
    """Accuracy by confidence."""

    def points(likely):
        place = np.minimum((likely * BINS).astype(int), BINS - 1)
        held = np.bincount(place, minlength=BINS)
        kept = held > 0
        return (
            np.bincount(place, values, BINS)[kept] / held[kept]
            for values in (likely, view.right.astype(float))
        )

    def draw(axes):
        axes.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle=":", label="perfect calibration")
        for likely, name, style in (
            (view.before, "before calibration" if calibrated else "not calibrated",
             {"color": "#d95f02", "linestyle": "--", "marker": "s", "markerfacecolor": "white"}),
            *([(view.after, "calibrated", {"color": ACCENT, "marker": "o"})] if calibrated else []),
        ):  # fmt: skip
            axes.plot(*points(likely), label=name, linewidth=1.4, markersize=5, **style)
        shares = np.histogram(view.after, BINS, (0, 1))[0] / len(view.after)
        axes.bar((np.arange(BINS) + 0.5) / BINS, shares, 0.9 / BINS, color="0.88", edgecolor="0.6", linewidth=0.5,
                 zorder=0, label="share of predictions")  # fmt: skip
        labelled(axes, "confidence", "accuracy")

    return drawn(path, (4.8, 4.4), draw)


def precision_recall(path: Path, curves: Mapping[str, tuple[np.ndarray, np.ndarray, int]]) -> str:
    """By name (probability, whether it is right, how many right ones there are)."""

    def draw(axes):
        for (name, (likely, right, wanted)), (color, stroke) in zip(curves.items(), STROKES, strict=False):
            order = np.argsort(-likely, kind="stable")
            hits = np.cumsum(right[order])
            last = np.append(likely[order][1:] != likely[order][:-1], True) if len(order) else []
            count = np.arange(1, len(hits) + 1)
            axes.plot(hits[last] / max(wanted, 1), (hits / count)[last], color=color, linestyle=stroke, linewidth=1.6,
                      label=short(name))  # fmt: skip
        labelled(axes, "recall", "precision")

    return drawn(path, (4.8, 4.4), draw)


def coverage(path: Path, view: View, units: str) -> str:
    """Accuracy among the most confident predictions."""
    order = np.argsort(-view.confidence, kind="stable")
    count = np.arange(1, len(order) + 1)
    share = np.cumsum(view.correct[order]) / count
    # Wilson's interval, which stays below 1 where nothing was wrong.
    middle = (share + 1.92 / count) / (1 + 3.84 / count)
    half = 1.96 * np.sqrt(share * (1 - share) / count + 0.96 / count**2) / (1 + 3.84 / count)

    def draw(axes):
        axes.fill_between(count / len(order), middle - half, middle + half, color=PALE, alpha=0.6, linewidth=0,
                          label="95 % interval")  # fmt: skip
        axes.plot(count / len(order), share, color=ACCENT, linewidth=1.6, label=f"most confident {units}")
        lowest = max(0.0, min(0.9, share.min() - 0.15))
        labelled(axes, f"coverage: share of the {units} kept", "accuracy", (lowest, 1.01))

    return drawn(path, (4.8, 4.0), draw)


def numbers(path: Path, predicted: np.ndarray, truth: np.ndarray) -> str:
    def draw(axes):
        axes.plot(truth, predicted, "o", color=ACCENT, alpha=0.35, markersize=4)
        ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
        axes.plot(ends, ends, color="0.5", linestyle=":", linewidth=1)
        axes.set_xlabel("true", fontsize=9)
        axes.set_ylabel("predicted", fontsize=9)
        axes.grid(color="0.9")

    return drawn(path, (4.8, 4.4), draw)


def balance(path: Path, parts: Mapping[str, Facts]) -> str:
    labels = list(dict.fromkeys(label for part in parts.values() for label in part.labels))[:MOST]
    height = 0.8 / len(parts)

    def draw(axes):
        for n, (name, part) in enumerate(parts.items()):
            shares = [part.labels.get(label, 0) / max(sum(part.labels.values()), 1) for label in labels]
            color, hatch = ("#08519c", "#9ecae1", "#d9d9d9", "#fdae6b")[n % 4], HATCHES[n % 4]
            axes.barh(np.arange(len(labels)) + n * height, shares, height, label=name, color=color, hatch=hatch,
                      edgecolor="white" if n == 0 else "0.3", linewidth=0.5)  # fmt: skip
        axes.set_yticks(np.arange(len(labels)) + 0.4 - height / 2, map(short, labels), fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("share", fontsize=9)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
        if len(parts) > 1:
            above(axes, len(parts))

    return drawn(path, (5.5, 1.2 + 0.34 * len(labels)), draw)


def lengths(path: Path, parts: Mapping[str, Facts], longest: int) -> str:
    most = max(int(np.quantile(part.lengths, 0.995)) for part in parts.values())
    most = max(most, 8)

    def draw(axes):
        for (name, part), (color, stroke) in zip(parts.items(), STROKES, strict=False):
            weights = np.full(len(part.lengths), 1 / len(part.lengths))
            axes.hist(np.minimum(part.lengths, most), bins=min(40, most), range=(0, most), weights=weights, color=color,
                      linestyle=stroke, histtype="step", linewidth=1.5, label=name)  # fmt: skip
        if longest <= most * 1.1:
            axes.axvline(longest, color=INK, linewidth=1, linestyle=":")
            axes.annotate(f"{longest} are read", (longest, axes.get_ylim()[1] * 0.95), (-4, 0), fontsize=8,
                          textcoords="offset points", ha="right")  # fmt: skip
        axes.set_xlabel("tokens per text", fontsize=9)
        axes.set_ylabel("share", fontsize=9)
        if len(parts) > 1:
            above(axes, len(parts))

    return drawn(path, (5.5, 3.2), draw)
