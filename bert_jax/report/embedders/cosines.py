"""Compare the cosines of matching pairs with those of random pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_jax.report.out_of_scope_detection import area_under_curve

DRAWN = 10_000  # at most this many pairs of each kind
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Cosines:
    right: np.ndarray
    random: np.ndarray
    noun: str  # what a query's match is called

    @classmethod
    def from_vectors(
        cls, queries: np.ndarray, documents: np.ndarray, relevant: Sequence[Sequence[int]], noun: str
    ) -> "Cosines":
        rng = np.random.default_rng(0)
        right = np.array([(q, d) for q, those in enumerate(relevant) for d in those])
        if len(right) > DRAWN:
            right = right[np.sort(rng.choice(len(right), DRAWN, replace=False))]
        matches_by_query = [set(those) for those in relevant]
        drawn = rng.integers((len(queries), len(documents)), size=(DRAWN, 2))
        random = np.array([(q, d) for q, d in drawn.tolist() if d not in matches_by_query[q]], int).reshape(
            -1, 2
        )
        matching_cosines, random_cosines = (
            (queries[pairs[:, 0]] * documents[pairs[:, 1]]).sum(-1) for pairs in (right, random)
        )
        return cls(matching_cosines, random_cosines, noun)

    @property
    def facts(self) -> dict[str, Any]:
        sides = {"right": self.right, "random": self.random}
        quantiles = {
            name: {str(q): float(np.quantile(values, q)) for q in QUANTILES}
            for name, values in sides.items()
            if len(values)
        }
        return {"quantiles": quantiles, "right_above_random": self.matching_above_random}

    @property
    def matching_above_random(self) -> float | None:
        """The probability that a matching pair's cosine exceeds a random pair's; None if there are no random pairs."""
        return area_under_curve(self.right, self.random) if len(self.random) else None

    @property
    def description(self) -> str:
        if self.matching_above_random is None:
            return f"The median cosine with a {self.noun} is {np.median(self.right):.3f}."
        return (
            f"The median cosine with a {self.noun} is {np.median(self.right):.3f}, with a random one "
            f"{np.median(self.random):.3f}; the former is higher in {self.matching_above_random:.1%} of cases."
        )
