"""Print and plot the gain from pre-training in the quickstart, with its 95% interval."""

import argparse
import math
from pathlib import Path
from statistics import mean, stdev

from bert_jax.report.plots import ACCENT, INK, PALE, save_plot
from bert_jax.training.log import read_metrics

MASKED = {"mlm_loss": "loss", "mlm_accuracy": "top 1", "mlm_top5_accuracy": "top 5"}
MODELS = {
    "untrained": "no pre-training",
    "pretrained": "pre-trained here",
    "published": "published, only a probe",
}
COLOURS = {"untrained": "0.85", "pretrained": PALE, "published": ACCENT}


def main(work: Path) -> None:
    print("\nMasked words of the validation set:")
    masked = {name: last_validation(work / name) for name in ("untrained", "pretrained")}
    for name, last in masked.items():
        print(
            f"  {MODELS[name]:<25}" + "   ".join(f"{label} {last[key]:.3f}" for key, label in MASKED.items())
        )
    print("\nAccuracy on docstrings of unseen modules, for each draw of 50 labels per library:")
    scores = {
        name: [last_validation(run)["accuracy"] for run in sorted((work / f"labels-{name}").glob("*/seed=*"))]
        for name in MODELS
    }
    for name, values in scores.items():
        print(f"  {MODELS[name]:<25}{mean(values):.3f}   of {', '.join(f'{v:.3f}' for v in values)}")
    tested = (work / "text" / "test.jsonl").read_text(encoding="utf-8").count("\n")
    print()
    for name in ("pretrained", "published"):
        print(f"  {verdict(MODELS[name], scores['untrained'], scores[name], tested)}")
    draw({name: [last[key] for key in MASKED if key != "mlm_loss"] for name, last in masked.items()}, scores,
         work / "result.png")  # fmt: skip


def verdict(name: str, before: list[float], after: list[float], tested: int) -> str:
    """Return a line with the mean gain over the runs on the same draws, and its 95% interval."""
    gains = [100 * (b - a) for a, b in zip(before, after, strict=True)]
    # Noise comes from the draws, and from the test docstrings, which are one sample for all draws.
    sampling = sum(mean(values) * (1 - mean(values)) / tested for values in (before, after))
    noise = 2 * math.sqrt(stdev(gains) ** 2 / len(gains) + 100**2 * sampling)
    within = abs(mean(gains)) <= noise
    interval = f"95% interval {mean(gains) - noise:.1f} to {mean(gains) + noise:.1f}"
    advice = ": within the noise; use more text, labels or steps" if within else ""
    return f"{name}: {mean(gains):+.1f} points ({interval}){advice}"


def draw(masked: dict[str, list[float]], scores: dict[str, list[float]], path: Path) -> None:
    """Plot the accuracy on unseen texts: masked words before and after pre-training, docstrings for every model."""
    groups = ("masked word,\ntop 1", "masked word,\ntop 5", "library of a docstring,\n50 labels per library")
    width = 0.3

    def bar(axes, group: int, name: str, values: list[float]) -> None:
        at = group + width * (list(MODELS).index(name) - 1)
        label = MODELS[name] if group == len(groups) - 1 else None
        axes.bar(at, mean(values), width * 0.94, color=COLOURS[name], label=label)
        axes.annotate(
            f"{mean(values):.3f}",
            (at, max(values)),
            (0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
        if len(values) > 1:
            axes.plot([at] * len(values), values, "o", color=INK, markeredgecolor="white", markersize=5)

    def panel(axes):
        for name, values in masked.items():
            for group, value in enumerate(values):
                bar(axes, group, name, [value])
        for name, values in scores.items():
            bar(axes, len(groups) - 1, name, values)
        axes.set_xticks(range(len(groups)), groups, fontsize=9)
        axes.set_ylabel("accuracy", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.12)
        axes.legend(frameon=False, fontsize=9, loc="upper left")

    save_plot(path, (8, 3.2), panel)


def last_validation(run: Path) -> dict:
    """Return the last metrics of the validation set."""
    return [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "validation"][-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="runs/quickstart, which launch/quickstart.sh writes")
    main(parser.parse_args().directory)
