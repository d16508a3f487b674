"""Measure how well a model tells out-of-scope texts, which it should refuse, from known texts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.example import Example
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.out_of_scope import OutOfScopeDetector
from bert_jax.predictions.prediction_input import read_out_of_scope
from bert_jax.report import plots
from bert_jax.text.truncation import TruncationCounter

P_VALUES = (0.01, 0.05, 0.1)  # a text is called out of scope if the p-value is below such a share
DRAWN_P_VALUE = 0.05  # the share that the picture shows


@dataclass
class DetectionRates:
    """The shares of known and of out-of-scope texts that are called out of scope if the p-value is below `p_value`."""

    p_value: float
    false_alarm_rate: float
    detection_rate: float


@dataclass
class OutOfScopeScores:
    known: int
    out_of_scope: int
    # The probability that a known text has a higher value than an out-of-scope text.
    auroc: float  # of the p-value
    auroc_of_probability: float | None  # None if all are equally probable (numbers)
    rates: list[DetectionRates] = field(default_factory=list)


@dataclass(frozen=True)
class TextScores:
    similarities: np.ndarray
    probabilities: np.ndarray  # the probabilities of the predictions


@dataclass(frozen=True)
class OutOfScopeComparison:
    scope: OutOfScopeDetector
    known: TextScores
    out_of_scope: TextScores
    learnt: bool = False  # whether the scope was learnt from these known texts

    @cached_property
    def scores(self) -> OutOfScopeScores:
        known, out_of_scope = (
            self.scope.p_value(texts.similarities) for texts in (self.known, self.out_of_scope)
        )
        likely = self.known.probabilities, self.out_of_scope.probabilities
        says_something = np.ptp(np.concatenate(likely)) > 0
        return OutOfScopeScores(
            len(known),
            len(out_of_scope),
            area_under_curve(known, out_of_scope),
            area_under_curve(*likely) if says_something else None,
            [
                DetectionRates(at, float((known < at).mean()), float((out_of_scope < at).mean()))
                for at in P_VALUES
            ],
        )


def read_out_of_scope_texts(model: Encoder, source: str, columns: ExampleColumns) -> list[Example]:
    """Read the texts of a file, from the named columns or else those of the training data, if the file has them."""
    model.scope.check_usable()
    if not columns.named:
        columns = replace(model.origin.columns, skip_bad=columns.skip_bad)
    return read_out_of_scope(source, columns, model.kind)


def compare_with_known(
    model: Encoder, known: Outcomes, examples: Sequence[Example], long_texts: str = "truncate"
) -> OutOfScopeComparison:
    """Compare known with out-of-scope texts; `known` must have its similarities."""
    assert known.similarities is not None
    uncounted = TruncationCounter(model.config.max_position_embeddings)
    compute_outcomes = OutcomePipeline(model, known.kind, long_texts, uncounted, compares=True)
    outcomes = map_texts([example.text for example in examples], compute_outcomes)

    def score_texts(raws: Iterable, similarities) -> TextScores:
        likely = [known.kind.decoder.confidence(raw, model.calibration) for raw in raws]
        return TextScores(np.array(similarities, np.float32), np.array(likely, np.float32))

    return OutOfScopeComparison(
        model.scope,
        score_texts(known.raw_outputs, known.similarities),
        score_texts(*zip(*outcomes, strict=True)),
    )


def area_under_curve(known: np.ndarray, out_of_scope: np.ndarray) -> float:
    """Return the probability that a known value is higher than an out-of-scope value; equal values count half.

    >>> area_under_curve(np.array([0.5, 0.9]), np.array([0.1, 0.5]))
    0.875
    """
    order = np.sort(out_of_scope)
    lower, equal_or_lower = (np.searchsorted(order, known, side) for side in ("left", "right"))
    return float((lower + equal_or_lower).mean() / (2 * len(order)))


def format_out_of_scope(scores: OutOfScopeScores) -> list[str]:
    lines = [
        f"out-of-scope detection: {scores.out_of_scope:,} out-of-scope and {scores.known:,} in-distribution texts"
    ]
    lines += [
        f"  area under the curve {name:<24}  {value:.4f}" for name, value in list_aurocs(scores).items()
    ]
    header = ("--out-of-scope", "false alarms", "detected")
    lines.append("  " + "  ".join(header))
    for row in scores.rates:
        values = f"{row.p_value:g}", f"{row.false_alarm_rate:.4f}", f"{row.detection_rate:.4f}"
        lines.append("  " + "  ".join(f"{x:>{len(name)}}" for x, name in zip(values, header, strict=True)))
    return lines


def list_aurocs(scores: OutOfScopeScores) -> dict[str, float]:
    """Return the areas under the curves that separate known from out-of-scope texts."""
    values = {
        "of the p-value": scores.auroc,
        "of the probability alone": scores.auroc_of_probability,
    }
    return {name: value for name, value in values.items() if value is not None}


def draw_similarities(path: Path, given: OutOfScopeComparison) -> str:
    """Draw how similar known and out-of-scope texts are to the training texts."""
    sides = {"in distribution": given.known.similarities, "out of scope": given.out_of_scope.similarities}
    every = np.concatenate(list(sides.values()))
    # The lowest similarity that is not called out of scope.
    edge = given.scope.known[np.argmax(given.scope.p_value(given.scope.known) >= DRAWN_P_VALUE)]

    def draw(axes):
        for (name, values), (color, stroke) in zip(sides.items(), plots.STROKES, strict=False):
            weights = np.full(len(values), 1 / len(values))
            axes.hist(values, bins=40, range=(every.min(), every.max()), weights=weights, color=color,
                      linestyle=stroke, histtype="step", linewidth=1.5, label=f"{name}: {len(values):,}")  # fmt: skip
        axes.axvline(
            edge,
            color=plots.INK,
            linewidth=1,
            linestyle=":",
            label=f"p-value {DRAWN_P_VALUE:g}",
        )
        axes.set_xlabel("mean similarity to the nearest training texts", fontsize=9)
        axes.set_ylabel("share", fontsize=9)
        plots.put_legend_above(axes, 3)

    return plots.save_plot(path, (5.5, 3.2), draw)
