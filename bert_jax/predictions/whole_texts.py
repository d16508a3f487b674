"""What the kinds share that predict of a whole text or a pair, by a head that classifies."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_jax.data.examples.arrange import Target
from bert_jax.data.examples.cells import CLASSES, LabelCells
from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.texts import read_texts
from bert_jax.errors import BertJaxError
from bert_jax.hub.layout import PROBLEM, Layout
from bert_jax.predictions.kind import Kind, Windows


@dataclass(frozen=True)
class Label:
    label: str
    score: float  # its probability
    margin: float = 0.0  # over the next likeliest; of several labels at once, over what it must exceed


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
        return {"labels": self.target, "weight": Target("float32")}

    @property
    def target(self) -> Target:
        return Target("int32")

    def values(self, example: Example, windows: Windows) -> list[dict[str, Any]]:
        """Each window has its example's label, and all windows of an example weigh as one."""
        count = len(windows.encodings)
        return [{"labels": self.value(example), "weight": 1 / count}] * count

    @abstractmethod
    def value(self, example: Example) -> Any:
        """The label as the target of a window."""


def learnable(kind: Kind, model) -> WholeTexts:
    """The kind, if it gives a text logits that another model can learn."""
    if not isinstance(kind, WholeTexts) or kind.link is None:
        raise BertJaxError(f"{model} predicts {kind.name}; a classifier of texts is needed")
    return kind


def problem_of(layout: Layout) -> str:
    return layout.published.get(PROBLEM) or ""
