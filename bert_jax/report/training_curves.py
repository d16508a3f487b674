"""Draw curves.png: the losses and scores of training and validation at each step."""

from pathlib import Path
from typing import Any

from bert_jax.core.output import atomic_file
from bert_jax.training.log import read_metrics

STYLES: dict[str, dict[str, Any]] = {"train": {"color": "tab:blue"}, "validation": {"color": "tab:orange"}}
MANY = 60  # lines with this many points or more are drawn without markers


def draw_training_curves(metrics: Path, picture: Path) -> None:
    """Draw a metrics.jsonl: a panel for each loss and score, and one for the learning rate."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    lines = {
        kind: [line for line in read_metrics(metrics) if line["kind"] == kind]
        for kind in ("train", "validation")
    }
    panels = choose_panels(*(lines[kind][0] if lines[kind] else {} for kind in STYLES)) or ["loss"]
    steps = [line["step"] for kind in STYLES for line in lines[kind]] or [0]
    margin = 0.03 * max(max(steps) - min(steps), 1)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.0 * rows), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    for number, name in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1, facecolor="white")
        axes.set_title(name.replace("_", " "), fontsize=10)
        axes.grid(color="0.9")
        for kind, style in STYLES.items():
            points = [(line["step"], line[name]) for line in lines[kind] if name in line]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    label=kind,
                    linewidth=1.2,
                    marker="o" if len(points) < MANY else None,
                    markersize=3,
                    **style,
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
