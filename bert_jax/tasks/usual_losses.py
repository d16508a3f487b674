"""Where the loss of masked words usually is: a band around runs on real text, which usual_losses.csv holds.

A run is compared with those of the same model and of the same kind of batches. Vocabularies differ, so a loss counts
as a share of the logarithm of their size, which is the loss of a model that knows nothing.
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
BESIDE = 0.04  # share of a loss by which a usual one may lie outside of all runs: other text, seeds, ends of schedules


@dataclass(frozen=True)
class Recipe:
    """What runs have to have in common."""

    layers: int
    hidden_size: int
    examples: str
    length: int
    batch: int
    rate: float  # share of the tokens that are predicted
    embeddings: str  # what they begin as

    @classmethod
    def of(cls, model: EncoderConfig, data: DataConfig, embeddings: str) -> "Recipe":
        shape = model.layers, model.hidden_size
        return cls(*shape, data.examples, data.lengths[0], data.batch, data.rate, embeddings)


@dataclass(frozen=True)
class UsualLosses:
    entries: int  # of the vocabulary
    curves: tuple[tuple[tuple[int, float], ...], ...]  # (step, share) of each run

    def at(self, step: int) -> tuple[float, float] | None:
        """(low, high) of the loss; None where a run tells nothing."""
        shares = [share_at(curve, step) for curve in self.curves]
        known = [share for share in shares if share is not None]
        if not known:
            return None
        nothing = math.log(self.entries)
        return nothing * min(known) * (1 - BESIDE), nothing * max(known) * (1 + BESIDE)


def share_at(curve: tuple[tuple[int, float], ...], step: int) -> float | None:
    """
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
    """Of a run that begins with initial values; None where no such run is known."""
    curves = known().get(Recipe.of(model, data, embeddings)) if len(data.lengths) == 1 else None
    return UsualLosses(model.vocab_size, curves) if curves else None


@cache
def known() -> dict[Recipe, tuple]:
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
