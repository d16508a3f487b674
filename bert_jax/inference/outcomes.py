"""Run a model on the labelled examples of a file."""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.examples.columns import EVIDENT, Columns, known_labels
from bert_jax.data.examples.example import Example
from bert_jax.inference.model import Model
from bert_jax.predictions.kind import Outcomes
from bert_jax.text.truncation import Truncated


def read(model: Model, data: str, columns: Columns = EVIDENT) -> tuple[list[Example], Sequence[str]]:
    """Return the examples of a file for this model, and the labels in the order that the file defines, if it does."""
    columns = model.origin.remembered(columns)
    return model.kind.read(data, columns), known_labels(data, columns)


def outcomes(
    model: Model,
    examples: Sequence[Example],
    known: Sequence[str] = (),
    long: str = "cut",
    scoped: bool = False,
) -> Outcomes:
    """Return the model's outcomes for the examples; if `scoped`, with their similarities to the training texts."""
    kind, notes = model.kind.matched(examples, known)
    truncated = Truncated(model.config.max_positions)
    texts = [example.text for example in examples]
    similarities: list[float] = []

    def read(raw, *similarity: float):
        similarities.extend(similarity)
        return raw

    raws = model.outcomes(kind, texts, read, long, truncated, scoped)
    notice = truncated.notice("--long windows reads all of them")
    notes = [*notes, notice] if notice else notes
    near = np.array(similarities, np.float32) if scoped else None
    return Outcomes(kind, examples, raws, model.calibration, notes, near)
