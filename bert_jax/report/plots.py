"""The pictures of a report, dark on white. Whatever differs in colour also differs in markers, lines or hatching."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_jax.core.output import atomic_file
from bert_jax.metrics.intervals import wilson_interval
from bert_jax.predictions.calibration_fitting import BINS
from bert_jax.predictions.learning_curve import LearningCurve
from bert_jax.predictions.report_data import ReportData
from bert_jax.report.data_facts import DataFacts
from bert_jax.training.log import read_metrics

INK, PALE, ACCENT = "#1a1a1a", "#9ecae1", "#08519c"
STROKES = [("#08519c", "-"), ("#d95f02", "--"), ("#1b7837", "-."), ("#762a83", ":"), ("#7f3b08", (0, (5, 1, 1, 1))),
           (INK, (0, (8, 1)))]  # fmt: skip
HATCHES = ("", "////", "....", "xx")
MAX_LABELS = 20  # at most this many labels in a confusion matrix or a bar chart
CURVE_COLOURS = {"train": "tab:blue", "validation": "tab:orange"}
MANY_POINTS = 60  # curves with this many points or more are drawn without markers
WIDEST = 26  # at most this many characters of a label


def save_plot(path: Path, size: tuple[float, float], draw: Callable, below: Callable | None = None) -> str:
    """Write a picture that `draw(axes)` draws, with a smaller panel under it by `below(axes)`. Return the file name."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    draws = [draw] if below is None else [draw, below]
    panels = figure.subplots(len(draws), squeeze=False, sharex=True, height_ratios=(3, 1)[: len(draws)])
    for axes, panel in zip(panels[:, 0], draws, strict=True):
        axes.tick_params(labelsize=8)
        panel(axes)
    with atomic_file(path) as new:
        figure.savefig(new, format="png", dpi=110, bbox_inches="tight")
    return path.name


def put_legend_above(axes, columns: int) -> None:
    """Put the legend above the axes, so that it covers nothing."""
    legend = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": columns}
    axes.legend(fontsize=8, frameon=False, **legend)


def finish_axes(axes, x: str, y: str, legend_columns: int) -> None:
    """Label the axes, and put a grid below and the legend above what is drawn."""
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    put_legend_above(axes, legend_columns)


def shorten_label(label: str) -> str:
    return label if len(label) <= WIDEST else label[: WIDEST - 1] + "…"


def plot_confusion(path: Path, counts: np.ndarray, true: Sequence[str], predicted: Sequence[str]) -> str:
    """Draw the `counts` of true classes in rows and predicted classes in columns."""
    rows, columns = counts.shape
    small = max(rows, columns) > 8

    def draw(axes):
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for row, column in zip(*np.nonzero(counts), strict=True):
            light = "white" if shares[row, column] > 0.55 else INK
            axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center",
                      fontsize=7 if small else 9, color=light)  # fmt: skip
        axes.set_xticks(
            range(columns), map(shorten_label, predicted), rotation=90 if columns > 4 else 0, fontsize=8
        )
        axes.set_yticks(range(rows), map(shorten_label, true), fontsize=8)
        axes.set_xlabel("predicted", fontsize=9)
        axes.set_ylabel("true", fontsize=9)
        # Grid lines between the cells, so that the eye can follow a row.
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="0.9", linewidth=0.5)
        axes.tick_params(which="minor", length=0)
        bar = axes.figure.colorbar(image, ax=axes, shrink=0.6)
        bar.set_label("share of the row", fontsize=8)
        bar.ax.tick_params(labelsize=8)

    return save_plot(path, (3 + 0.42 * columns, 2 + 0.42 * rows), draw)


def bin_by_confidence(likely: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each bin of confidence that is not empty, the mean confidence, the number of right ones and of all.

    >>> [values.tolist() for values in bin_by_confidence(np.array([0.5, 0.51, 1.0]), np.array([True, False, True]))]
    [[0.505, 1.0], [1.0, 1.0], [2, 1]]
    """
    bins = np.minimum((likely * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    kept = count > 0
    total, hits = (np.bincount(bins, values, BINS)[kept] for values in (likely, right.astype(float)))
    return total / count[kept], hits, count[kept]


def plot_reliability(path: Path, view: ReportData, calibrated: bool) -> str:
    """Draw accuracy by confidence, and the number of predictions of each point."""
    edges = np.linspace(0, 1, BINS + 1)

    def points(axes, likely, shift, **style):
        mean, right, count = bin_by_confidence(likely, view.right)
        apart = np.abs(np.stack(wilson_interval(right, count)) - right / count)
        axes.errorbar(mean + shift, right / count, apart, linestyle="", markersize=5, elinewidth=1.2, **style)

    def accuracy(axes):
        axes.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle=":", label="perfect calibration")
        before = "before calibration" if calibrated else "not calibrated"
        hollow = {"color": "#d95f02", "markerfacecolor": "white", "marker": "s"}
        # Shift the points sideways, so that those of equal bins don't overlap.
        points(axes, view.uncalibrated, -0.004 * calibrated, label=f"{before}, 95 % interval", **hollow)
        if calibrated:
            points(axes, view.calibrated, 0.004, label="calibrated, 95 % interval", color=ACCENT, marker="o")
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.03)
        finish_axes(axes, "", "accuracy", 2)

    def counts(axes):
        total = np.histogram(view.calibrated, edges)[0]
        axes.bar(
            (edges[1:] + edges[:-1]) / 2, total, 0.9 / BINS, color="0.85", edgecolor="0.6", linewidth=0.5
        )
        for middle, count in zip((edges[1:] + edges[:-1]) / 2, total, strict=True):
            axes.text(middle, count, f"{count:,}" if count else "", ha="center", va="bottom", fontsize=6.5)
        axes.set_ylim(0, 1.25 * total.max())
        axes.set_xlabel("confidence", fontsize=9)
        axes.set_ylabel("calibrated\npredictions" if calibrated else "predictions", fontsize=9)

    return save_plot(path, (5.6, 5.6), accuracy, counts)


def plot_coverage(path: Path, view: ReportData, units: str) -> str:
    """Draw the accuracy of the most confident predictions."""
    order = np.argsort(-view.confidence, kind="stable")
    count, right = np.arange(1, len(order) + 1), np.cumsum(view.correct[order])
    share, (low, high) = right / count, wilson_interval(right, count)

    def draw(axes):
        axes.fill_between(count / len(order), low, high, color=PALE, alpha=0.6, linewidth=0,
                          label="95 % interval")  # fmt: skip
        axes.plot(count / len(order), share, color=ACCENT, linewidth=1.6, label=f"most confident {units}")
        lowest = max(0.0, min(0.9, share.min() - 0.15))
        axes.set_xlim(0, 1.02)
        axes.set_ylim(lowest, 1.01)
        finish_axes(axes, f"coverage: share of the {units} kept", "accuracy", 2)

    return save_plot(path, (4.8, 4.0), draw)


def plot_numbers(path: Path, predicted: np.ndarray, truth: np.ndarray) -> str:
    def draw(axes):
        axes.plot(truth, predicted, "o", color=ACCENT, alpha=0.35, markersize=4)
        ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
        axes.plot(ends, ends, color="0.5", linestyle=":", linewidth=1, label="predicted = true")
        finish_axes(axes, "true", "predicted", 1)

    return save_plot(path, (4.8, 4.4), draw)


def plot_class_balance(path: Path, parts: Mapping[str, DataFacts]) -> str:
    every = list(dict.fromkeys(label for part in parts.values() for label in part.labels))
    labels = every[:MAX_LABELS]
    of = f" (the {MAX_LABELS} most frequent of {len(every)} classes)" if len(every) > MAX_LABELS else ""
    height = 0.8 / len(parts)

    def draw(axes):
        for n, (name, part) in enumerate(parts.items()):
            shares = [part.labels.get(label, 0) / max(sum(part.labels.values()), 1) for label in labels]
            color, hatch = ("#08519c", "#9ecae1", "#d9d9d9", "#fdae6b")[n % 4], HATCHES[n % 4]
            axes.barh(np.arange(len(labels)) + n * height, shares, height, label=name, color=color, hatch=hatch,
                      edgecolor="white" if n == 0 else "0.3", linewidth=0.5)  # fmt: skip
        axes.set_yticks(np.arange(len(labels)) + 0.4 - height / 2, map(shorten_label, labels), fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(f"share{of}", fontsize=9)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
        if len(parts) > 1:
            put_legend_above(axes, len(parts))

    return save_plot(path, (5.5, 1.2 + 0.34 * len(labels)), draw)


def draw_learning_curve(path: Path, curve: LearningCurve) -> str:
    def draw(axes):
        axes.plot(curve.labels, curve.scores, "o-", color=ACCENT, label="measured out of fold")
        n, score = curve.labels[-1], curve.scores[-1]
        below, above = curve.gain - curve.low, curve.high - curve.gain
        axes.errorbar([2 * n], [score + curve.gain], [[below], [above]], fmt="s", color=INK, capsize=4,
                      label="forecast, 90 % interval")  # fmt: skip
        axes.plot([n, 2 * n], [score, score + curve.gain], "--", color=INK, lw=1)
        axes.set_xscale("log", base=2)
        sizes = [*curve.labels, 2 * n]
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        finish_axes(axes, "labelled examples", curve.metric.replace("_", " "), 2)

    return save_plot(path, (5, 3), draw)


def draw_training_curves(metrics: Path, picture: Path) -> None:
    """Draw a metrics.jsonl: a panel for each loss and score, and one for the learning rate."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    lines = {
        split: [line for line in read_metrics(metrics) if line["kind"] == split]
        for split in ("train", "validation")
    }
    panels = choose_panels(*(lines[split][0] if lines[split] else {} for split in CURVE_COLOURS)) or ["loss"]
    steps = [line["step"] for split in CURVE_COLOURS for line in lines[split]] or [0]
    margin = 0.03 * max(max(steps) - min(steps), 1)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.0 * rows), facecolor="white", layout="constrained")
    for number, name in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1, facecolor="white")
        axes.set_title(name.replace("_", " "), fontsize=10)
        axes.grid(color="0.9")
        for split, color in CURVE_COLOURS.items():
            points = [(line["step"], line[name]) for line in lines[split] if name in line]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    label=split,
                    linewidth=1.2,
                    marker="o" if len(points) < MANY_POINTS else None,
                    markersize=3,
                    color=color,
                )
                axes.legend(fontsize=8, frameon=False)
        axes.set_xlim(min(steps) - margin, max(steps) + margin)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=8)
    with atomic_file(picture) as path:
        figure.savefig(path, format="png", dpi=110)


def choose_panels(train: dict, validation: dict) -> list[str]:
    """Return the panels to draw: training's losses, scores and learning rate, and everything that validation measures.

    >>> trained = {"loss": 1.0, "tag_loss": 1.0, "learning_rate": 0.1, "tokens": 7}
    >>> choose_panels(trained, {"tag_loss": 1.1, "f1": 0.5, "time": {}})
    ['tag_loss', 'learning_rate', 'f1']
    """
    losses = [name for name in train if name.endswith("_loss")]
    shown = [name for name in train if name.endswith(("loss", "accuracy", "perplexity", "learning_rate"))]
    shown += [name for name in validation if name not in ("step", "kind", "time")]
    # If there is only one "..._loss", "loss" is the same curve.
    return [name for name in dict.fromkeys(shown) if name != "loss" or len(losses) != 1]
