"""Prints the results of the quickstart with and without pre-training, and whether they differ by more than chance.

python launch/quickstart_result.py runs/quickstart
"""

import math
import sys
from pathlib import Path
from statistics import mean, stdev

from bert_jax.train.log import read

PRETRAINING = {
    "mlm_loss": "loss",
    "mlm_accuracy": "top 1",
    "mlm_top5_accuracy": "top 5",
    "nsp_accuracy": "next sentence",
}


def main(work: Path) -> None:
    print("\nMasked words and sentence pairs of the validation set:")
    for name in ("untrained", "pretrained"):
        last = heldout(work / name)
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


def heldout(run: Path) -> dict:
    """The last metrics of the validation set."""
    return [line for line in read(run / "metrics.jsonl") if line["kind"] == "heldout"][-1]


def variance(values: list[float], tested: int) -> float:
    """The variance of a mean of runs: that of the seeds, and that of the examples, which all runs share."""
    return stdev(values) ** 2 / len(values) + mean(values) * (1 - mean(values)) / tested


if __name__ == "__main__":
    main(Path(sys.argv[1]))
