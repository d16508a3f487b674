"""Prints and draws the results of the quickstart with and without pre-training, and whether they differ by more than
chance.

python launch/quickstart_result.py runs/quickstart
"""

import math
import sys
from pathlib import Path
from statistics import mean, stdev

from bert_jax.report.pictures import ACCENT, INK, PALE, drawn
from bert_jax.train.log import read

PRETRAINING = {
    "mlm_loss": "loss",
    "mlm_accuracy": "top 1",
    "mlm_top5_accuracy": "top 5",
    "nsp_accuracy": "next sentence",
}
MEASURES = (
    "masked word, top 1",
    "masked word, top 5",
    "next sentence",
    "library of a docstring,\nmean of the runs",
)
DRAWN = ("mlm_accuracy", "mlm_top5_accuracy", "nsp_accuracy")
COLOURS = {"untrained": PALE, "pretrained": ACCENT}


def main(work: Path) -> None:
    print("\nMasked words and sentence pairs of the validation set:")
    measured = {name: heldout(work / name) for name in ("untrained", "pretrained")}
    for name, last in measured.items():
        print(f"  {name:<11}" + "   ".join(f"{label} {last[key]:.3f}" for key, label in PRETRAINING.items()))
    print("\nAccuracy on docstrings of unseen modules, mean and standard deviation of the runs:")
    runs = {name: sorted((work / f"labels-{name}").glob("*/seed=*")) for name in ("untrained", "pretrained")}
    scores = {name: [heldout(run)["accuracy"] for run in of_seeds] for name, of_seeds in runs.items()}
    for name, values in scores.items():
        print(
            f"  {name:<11}{mean(values):.3f} ± {stdev(values):.3f}   of {', '.join(f'{v:.3f}' for v in values)}"
        )
    gain = 100 * (mean(scores["pretrained"]) - mean(scores["untrained"]))
    tested = (work / "text" / "test.jsonl").read_text(encoding="utf-8").count("\n")
    noise = 200 * math.sqrt(sum(variance(values, tested) for values in scores.values()))
    verdict = "more than chance" if abs(gain) > noise else "within the noise; use more labels, text or steps"
    print(f"  pre-training brings {gain:+.1f} points; two standard errors are {noise:.1f}: {verdict}")
    draw({name: [last[key] for key in DRAWN] for name, last in measured.items()}, scores, work / "result.png")


def draw(measured: dict[str, list[float]], scores: dict[str, list[float]], path: Path) -> None:
    """What is predicted of texts that no run has seen, before and after pre-training."""

    def panel(axes):
        for place, (name, values) in enumerate(measured.items()):
            at = [group + 0.4 * (place - 0.5) for group in range(len(DRAWN))]
            bars = axes.bar(at, values, 0.38, color=COLOURS[name], label=name)
            axes.bar_label(bars, fmt="%.3f", fontsize=8)
        for name, values in scores.items():
            at = len(DRAWN) + 0.4 * (list(scores).index(name) - 0.5)
            bars = axes.bar(at, mean(values), 0.38, color=COLOURS[name])
            axes.bar_label(bars, fmt="%.3f", fontsize=8, padding=12)
            axes.plot([at] * len(values), values, "o", color=INK, markeredgecolor="white", markersize=5)
        axes.set_xticks(range(len(MEASURES)), MEASURES, fontsize=9)
        axes.set_ylabel("accuracy", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.12)
        axes.legend(frameon=False, fontsize=9, loc="upper left")

    drawn(path, (8, 3.2), panel)


def heldout(run: Path) -> dict:
    """The last metrics of the validation set."""
    return [line for line in read(run / "metrics.jsonl") if line["kind"] == "heldout"][-1]


def variance(values: list[float], tested: int) -> float:
    """The variance of a mean of runs: that of the seeds, and that of the examples, which all runs share."""
    return stdev(values) ** 2 / len(values) + mean(values) * (1 - mean(values)) / tested


if __name__ == "__main__":
    main(Path(sys.argv[1]))
