"""Run a model on the labelled examples of a file."""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, source_labels
from bert_jax.data.examples.example import Example
from bert_jax.inference.model import Model
from bert_jax.predictions.kind import Outcomes
from bert_jax.text.truncation import TruncationCounter


def read_examples(
    model: Model, data: str, columns: ExampleColumns = AUTODETECT
) -> tuple[list[Example], Sequence[str]]:
    """Return the examples of a file for this model, and the labels in the order that the file defines, if it does."""
    columns = model.origin.complete_columns(columns)
    return model.kind.read(data, columns), source_labels(data, columns)


def predict_outcomes(
    model: Model,
    examples: Sequence[Example],
    label_order: Sequence[str] = (),
    long_texts: str = "truncate",
    scoped: bool = False,
) -> Outcomes:
    """Return the model's outcomes for the examples; if `scoped`, with their similarities to the training texts."""
    kind, notes = model.kind.match_labels(examples, label_order)
    truncated = TruncationCounter(model.config.max_positions)
    texts = [example.text for example in examples]
    similarities: list[float] = []

    def read(raw, *similarity: float):
        similarities.extend(similarity)
        return raw

    raws = model.outcomes(kind, texts, read, long_texts, truncated, scoped)
    notice = truncated.notice("--long-texts windows reads all of them")
    notes = [*notes, notice] if notice else notes
    near = np.array(similarities, np.float32) if scoped else None
    return Outcomes(kind, examples, raws, model.calibration, notes, near)
