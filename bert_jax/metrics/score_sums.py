"""Scores as functions of sums over examples.

A resample of the examples (bootstrap) therefore needs no example to be scored again: its scores follow from its sums.
All scores lie between 0 and 1 (correlations between -1 and 1), and higher is better; only for the mean squared error
lower is better. A ratio of 0 to 0 counts as 0, and so does the correlation with a constant.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.core.errors import BertJaxError


@dataclass(frozen=True)
class ScoreSums:
    """A row of numbers for each example, and a function that turns sums [..., S] of such rows into scores."""

    rows: np.ndarray  # [N, S]
    compute_scores: Callable[[np.ndarray], dict[str, np.ndarray]]

    @property
    def scores(self) -> dict[str, float]:
        """The scores over all examples."""
        return {name: float(value) for name, value in self.compute_scores(self.rows.sum(0)).items()}


def safe_ratio(numerator, denominator):
    return np.divide(
        numerator,
        denominator,
        out=np.zeros(np.broadcast(numerator, denominator).shape),
        where=np.asarray(denominator) != 0,
    )


def split_sums(sums: np.ndarray, parts: int) -> list[np.ndarray]:
    return np.split(sums.astype(float), parts, axis=-1)


def check_lengths(predicted: Sequence, truth: Sequence) -> None:
    if len(predicted) != len(truth):
        raise BertJaxError(f"{len(predicted)} predictions for {len(truth)} examples; give each example one")
    if not len(truth):
        raise BertJaxError("no example to score: the data is empty")


# About 0 if the predictions do not depend on the text.
INFORMATIVE = ("matthews", "spearman", "f1_micro", "f1")
NEGLIGIBLE = 0.02  # an informative score below this counts as 0


def uninformative_metric(measured: Mapping[str, float]) -> str:
    """Name the metric that shows that the predictions do not depend on the texts; "" if none does.

    >>> uninformative_metric({"accuracy": 0.9, "matthews": 0.01})
    'matthews 0.010: predictions look constant or random'
    """
    name = next((name for name in INFORMATIVE if name in measured), None)
    if name is None or abs(measured[name]) >= NEGLIGIBLE:
        return ""
    return f"{name} {measured[name]:.3f}: predictions look constant or random"
