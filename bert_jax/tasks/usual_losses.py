"""The usual range of the masked-LM loss: a band around the runs on real text in usual_losses.csv.

A run is compared with runs of the same model size and the same kind of batches. Because vocabularies differ, losses are
compared as shares of the logarithm of the vocabulary size, which is the loss of a model that knows nothing.
"""

import csv
import math
from bisect import bisect_left
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from bert_jax.data.corpus.config import DataConfig
from bert_jax.models.config import EncoderConfig

FILE = Path(__file__).with_suffix(".csv")
# The band is wider than the known runs by this share of the loss, for other texts, seeds and lengths of schedules.
MARGIN = 0.04


@dataclass(frozen=True)
class Recipe:
    """What runs must have in common to be compared."""

    layers: int
    hidden_size: int
    examples: str
    length: int
    batch: int
    rate: float  # share of the tokens that are predicted
    embeddings: str  # how they are initialised

    @classmethod
    def of(cls, model: EncoderConfig, data: DataConfig, embeddings: str) -> "Recipe":
        shape = model.layers, model.hidden_size
        return cls(*shape, data.examples, data.lengths[0], data.batch, data.rate, embeddings)


@dataclass(frozen=True)
class UsualLosses:
    entries: int  # in the vocabulary
    curves: tuple[tuple[tuple[int, float], ...], ...]  # (step, share) of each run

    def at(self, step: int) -> tuple[float, float] | None:
        """Return (low, high) of the loss; None if no run covers this step."""
        shares = [share_at(curve, step) for curve in self.curves]
        known = [share for share in shares if share is not None]
        if not known:
            return None
        nothing = math.log(self.entries)
        return nothing * min(known) * (1 - MARGIN), nothing * max(known) * (1 + MARGIN)


def share_at(curve: tuple[tuple[int, float], ...], step: int) -> float | None:
    """Interpolate a curve at a step; None outside of its steps.

    >>> share_at(((50, 0.9), (100, 0.8)), 75), share_at(((50, 0.9),), 51)
    (0.8500000000000001, None)
    """
    after = bisect_left(curve, (step, -math.inf))
    if after < len(curve) and curve[after][0] == step:
        return curve[after][1]
    if not 0 < after < len(curve):
        return None
    (before, first), (then, second) = curve[after - 1 : after + 1]
    return first + (second - first) * (step - before) / (then - before)


def usual(model: EncoderConfig, data: DataConfig, embeddings: str) -> UsualLosses | None:
    """Return the usual losses of a run from initial values; None if no such run is known."""
    curves = known_curves().get(Recipe.of(model, data, embeddings)) if len(data.lengths) == 1 else None
    return UsualLosses(model.vocab_size, curves) if curves else None


@cache
def known_curves() -> dict[Recipe, tuple]:
    runs: dict[tuple[Recipe, str], list[tuple[int, float]]] = {}
    with open(FILE, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            recipe = Recipe(**{field.name: field.type(row[field.name]) for field in fields(Recipe)})  # type: ignore
            point = int(row["step"]), float(row["loss"]) / math.log(int(row["entries"]))
            runs.setdefault((recipe, row["text"]), []).append(point)
    by_recipe: dict[Recipe, tuple] = {}
    for (recipe, _), curve in runs.items():
        by_recipe[recipe] = (*by_recipe.get(recipe, ()), tuple(sorted(curve)))
    return by_recipe
