"""The picture of a learning curve and its forecast."""

from pathlib import Path

from bert_jax.predictions.learning_curve import LearningCurve
from bert_jax.report.plots import ACCENT, INK, save_plot


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
        axes.set_xlabel("labelled examples", fontsize=9)
        axes.set_ylabel(curve.metric.replace("_", " "), fontsize=9)
        axes.grid(color="0.9")
        axes.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)

    return save_plot(path, (5, 3), draw)
