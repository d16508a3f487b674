"""What can be guaranteed for the predictions of single labels, and how many of their examples these find."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from bert_jax.core.config import NonNegative, Share, check_ranges
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.predictions.selective import CoverageLevels, count_levels, design_effect


@dataclass(frozen=True)
class PredictedLabels:
    """Predicted labels: one value for each of them."""

    name: np.ndarray
    confidence: np.ndarray  # the probability that it is right
    correct: np.ndarray
    example: np.ndarray  # the index of its example

    @classmethod
    def concatenate(cls, parts: Iterable["PredictedLabels"]) -> "PredictedLabels":
        parts = list(parts)
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


NO_LABELS = PredictedLabels(np.zeros(0, str), np.zeros(0), np.zeros(0, bool), np.zeros(0, int))


@dataclass(frozen=True, repr=False)
class LabelLevels:
    """The coverage levels of the predictions of one label."""

    label: str
    examples: NonNegative  # that have the label
    levels: CoverageLevels
    recalls: tuple[Share, ...]  # for each level, the share of these examples that its predictions find

    def __post_init__(self):
        check_ranges(self, "by_label.")
        if len(self.recalls) != len(self.levels):
            raise BertJaxError(f"by_label has {len(self.recalls)} recalls for {len(self.levels)} levels")

    def __repr__(self) -> str:
        recall, examples = max(self.recalls, default=0), pluralize(self.examples, "example")
        return f'<LabelLevels of "{self.label}": {examples}, recall up to {recall:.3f}>'

    def recall_from(self, threshold: float) -> float:
        """Return the recall of the predictions that are at least as probable as one of the levels."""
        return next(
            recall
            for level, recall in zip(self.levels, self.recalls, strict=True)
            if level.threshold == threshold
        )


def count_label_levels(
    predicted: PredictedLabels, documents: np.ndarray, true: Mapping[str, int]
) -> tuple[LabelLevels, ...]:
    """Count the levels of each label; `true` says how many examples have it, `documents` [examples] whose they are."""
    counted = []
    for label, examples in true.items():
        of_label = predicted.name == label
        confidence, correct = predicted.confidence[of_label], predicted.correct[of_label]
        effect = design_effect(correct, documents[predicted.example[of_label]])
        levels = count_levels(confidence, correct, effect)
        hits = [int((correct & (confidence >= level.threshold)).sum()) for level in levels]
        counted.append(LabelLevels(label, examples, levels, tuple(n / max(examples, 1) for n in hits)))
    return tuple(counted)
