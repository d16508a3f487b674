"""What a model gives for labelled examples, one by one: scores, calibrations and reports are made from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bert_jax.data.examples.columns import EVIDENT, Columns, known_labels
from bert_jax.data.examples.example import Example
from bert_jax.inference.model import Model
from bert_jax.metrics import Sums
from bert_jax.predictions.calibration import NONE, Calibration
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.view import View
from bert_jax.text.truncation import Truncated


@dataclass
class Outcomes:
    kind: Kind  # bound to the data's labels
    examples: Sequence[Example]
    raws: list  # one for each example
    calibration: Calibration = NONE
    notes: list[str] = field(default_factory=list)

    @property
    def truth(self) -> list:
        return [self.kind.truth(example) for example in self.examples]

    @property
    def predicted(self) -> list:
        return [self.kind.predicted(raw, self.calibration) for raw in self.raws]

    @property
    def sums(self) -> Sums:
        return self.kind.sums(self.predicted, self.truth)

    @property
    def view(self) -> View:
        return self.kind.view(self.examples, self.raws, self.calibration)


def read(model: Model, data: str, columns: Columns = EVIDENT) -> tuple[list[Example], Sequence[str]]:
    """The examples of a file for this model, and the order of labels that the file knows of."""
    return model.kind.read(data, columns), known_labels(data, columns)


def outcomes(
    model: Model, examples: Sequence[Example], known: Sequence[str] = (), long: str = "cut"
) -> Outcomes:
    kind, notes = model.kind.matched(examples, known)
    truncated = Truncated(model.config.max_positions)
    texts = [example.text for example in examples]
    raws = model.outcomes(kind, texts, long=long, truncated=truncated)
    notice = truncated.notice("--long windows reads all of them")
    return Outcomes(kind, examples, raws, model.calibration, notes + [notice] * bool(notice))
