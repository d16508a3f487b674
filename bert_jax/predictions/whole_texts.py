"""The base of the kinds that predict something about a whole text or a pair, with a classification head."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.arrange import Target
from bert_jax.data.examples.cells import CLASSES, LabelCells
from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.texts import read_texts
from bert_jax.hub.layout import PROBLEM, Layout
from bert_jax.predictions.kind import Kind, Windows


@dataclass(frozen=True)
class Label:
    label: str
    score: float  # the probability of the label
    margin: float = 0.0  # score minus that of the second label or, with several labels, minus its threshold


@dataclass(frozen=True)
class WholeTexts(Kind):
    """`raw` is the mean of the windows' logits, [labels]."""

    heads: ClassVar[tuple[str, ...]] = (
        "classify",
        "classify_mean",
        "classify_cls",
        "compare_mean",
        "compare_cls",
    )
    units = abstention_units = "texts"
    cells: ClassVar[LabelCells] = CLASSES
    problem: ClassVar[str] = ""  # Hugging Face's problem_type

    @property
    def published(self) -> dict[str, Any]:
        return {PROBLEM: self.problem} if self.problem else super().published

    @classmethod
    def read(cls, spec: str, columns: Columns = EVIDENT, most: int = 0) -> list[Example]:
        return read_texts(spec, columns, cls.cells, most)

    def raw(self, text, windows: Windows, logits: Sequence) -> Any:
        return np.mean(logits, axis=0)

    @property
    def targets(self) -> dict[str, Target]:
        return {"labels": self.target, "label_weights": Target("float32")}

    @property
    def target(self) -> Target:
        return Target("int32")

    def values(self, example: Example, windows: Windows) -> list[dict[str, Any]]:
        """Give each window the label of its example; the weights of an example's windows add up to 1."""
        count = len(windows.encodings)
        return [{"labels": self.value(example), "label_weights": 1 / count}] * count

    @abstractmethod
    def value(self, example: Example) -> Any:
        """Return an example's label as the target of a window."""


def learnable(kind: Kind, model) -> WholeTexts:
    """Return the kind if another model can learn its logits for whole texts; refuse it otherwise."""
    if not isinstance(kind, WholeTexts) or kind.link is None:
        raise BertJaxError(f"{model} predicts {kind.name}; a classifier of texts is needed")
    return kind


def problem_of(layout: Layout) -> str:
    return layout.published.get(PROBLEM) or ""
