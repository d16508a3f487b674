"""Measure how well a model tells foreign texts, which it should refuse, from known texts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bert_jax.data.examples.columns import Columns
from bert_jax.data.examples.example import Example
from bert_jax.inference.model import Model
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.scope import Scope
from bert_jax.predictions.unlabelled import read_foreign
from bert_jax.report import plots
from bert_jax.text.truncation import Truncated

SHARES = (0.01, 0.05, 0.1)  # a text is called foreign if in_scope is below such a share
DRAWN = 0.05  # the share that the picture shows


@dataclass
class Called:
    """The shares of known and of foreign texts that are called foreign if in_scope is below `at`."""

    at: float
    known: float
    foreign: float


@dataclass
class OutOfScope:
    known: int
    foreign: int
    # The probability that a known text has a higher value than a foreign text.
    area: float  # of in_scope
    area_of_probability: float | None  # None if all are equally probable (numbers)
    called: list[Called] = field(default_factory=list)


@dataclass(frozen=True)
class Texts:
    similarities: np.ndarray
    probabilities: np.ndarray  # the probabilities of the predictions


@dataclass(frozen=True)
class Foreign:
    scope: Scope
    known: Texts
    foreign: Texts
    learnt: bool = False  # whether the scope was learnt from these known texts

    @cached_property
    def scores(self) -> OutOfScope:
        known, foreign = (self.scope.share(texts.similarities) for texts in (self.known, self.foreign))
        likely = self.known.probabilities, self.foreign.probabilities
        says_something = np.ptp(np.concatenate(likely)) > 0
        return OutOfScope(
            len(known),
            len(foreign),
            area_under_curve(known, foreign),
            area_under_curve(*likely) if says_something else None,
            [Called(at, float((known < at).mean()), float((foreign < at).mean())) for at in SHARES],
        )


def read(model: Model, source: str, columns: Columns) -> list[Example]:
    """Read the texts of a file, from the named columns or else those of the training data, if the file has them."""
    model.scope.check()
    if not columns.named:
        columns = replace(model.origin.columns, skip_bad=columns.skip_bad)
    return read_foreign(source, columns, model.kind)


def compared(model: Model, known: Outcomes, examples: Sequence[Example], long: str = "cut") -> Foreign:
    """Compare known with foreign texts; `known` must have its similarities."""
    kind, calibration = known.kind, model.calibration
    assert known.similarities is not None

    def read(raw, similarity: float) -> tuple[float, float]:
        return similarity, kind.confidence(raw, calibration)

    uncounted = Truncated(model.config.max_positions)
    texts = [example.text for example in examples]
    pairs = model.outcomes(kind, texts, read, long, uncounted, True)
    similarities, probabilities = np.array(pairs, np.float32).T
    likely = np.array([kind.confidence(raw, calibration) for raw in known.raws], np.float32)
    return Foreign(model.scope, Texts(known.similarities, likely), Texts(similarities, probabilities))


def area_under_curve(known: np.ndarray, foreign: np.ndarray) -> float:
    """Return the probability that a known value is higher than a foreign value; equal values count half.

    >>> area_under_curve(np.array([0.5, 0.9]), np.array([0.1, 0.5]))
    0.875
    """
    order = np.sort(foreign)
    lower, equal_or_lower = (np.searchsorted(order, known, side) for side in ("left", "right"))
    return float((lower + equal_or_lower).mean() / (2 * len(order)))


def in_lines(scores: OutOfScope) -> list[str]:
    lines = [f"out of scope: {scores.foreign:,} foreign and {scores.known:,} known texts"]
    lines += [f"  area under the curve {name:<24}  {value:.4f}" for name, value in areas(scores).items()]
    header = ("--foreign", "known called foreign", "foreign called foreign")
    lines.append("  " + "  ".join(header))
    for row in scores.called:
        values = f"{row.at:g}", f"{row.known:.4f}", f"{row.foreign:.4f}"
        lines.append("  " + "  ".join(f"{x:>{len(name)}}" for x, name in zip(values, header, strict=True)))
    return lines


def areas(scores: OutOfScope) -> dict[str, float]:
    """Return the areas under the curves that separate known from foreign texts."""
    values = {
        "of in_scope": scores.area,
        "of the probability alone": scores.area_of_probability,
    }
    return {name: value for name, value in values.items() if value is not None}


def picture(path: Path, given: Foreign) -> str:
    """Draw how similar known and foreign texts are to the training texts."""
    sides = {"known": given.known.similarities, "foreign": given.foreign.similarities}
    every = np.concatenate(list(sides.values()))
    # The lowest similarity that is not called foreign.
    edge = given.scope.known[np.argmax(given.scope.share(given.scope.known) >= DRAWN)]

    def draw(axes):
        for (name, values), (color, stroke) in zip(sides.items(), plots.STROKES, strict=False):
            weights = np.full(len(values), 1 / len(values))
            axes.hist(values, bins=40, range=(every.min(), every.max()), weights=weights, color=color,
                      linestyle=stroke, histtype="step", linewidth=1.5, label=f"{name}: {len(values):,}")  # fmt: skip
        axes.axvline(edge, color=plots.INK, linewidth=1, linestyle=":", label=f"foreign below, at {DRAWN:g}")
        axes.set_xlabel("mean similarity to the nearest training texts", fontsize=9)
        axes.set_ylabel("share", fontsize=9)
        plots.above(axes, 3)

    return plots.drawn(path, (5.5, 3.2), draw)
