"""Run a model on the labelled examples of a file."""

from collections.abc import Sequence

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, source_labels
from bert_jax.data.examples.example import Example
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import OutcomePipeline, advice_for
from bert_jax.predictions.kind import Outcomes
from bert_jax.text.truncation import TruncationCounter


def read_examples(
    model: Encoder, data: str, columns: ExampleColumns = AUTODETECT
) -> tuple[list[Example], Sequence[str]]:
    """Return the examples of a file for this model, and the labels in the order that the file defines, if it does."""
    if columns.label_separator and not model.kind.separates_labels:
        raise BertJaxError(
            f"--label-separator is for a model of several labels per text, and this one predicts {model.kind.name}; "
            "leave it out"
        )
    columns = model.origin.complete_columns(columns)
    return model.kind.read_examples(data, columns), source_labels(data, columns)


def predict_outcomes(
    model: Encoder,
    examples: Sequence[Example],
    label_order: Sequence[str] = (),
    long_texts: str = "truncate",
    compares: bool = False,
) -> Outcomes:
    """Return the model's outcomes for the examples; if it `compares`, with their similarities to the training texts."""
    kind, notes = model.kind.match_labels(examples, label_order)
    truncated = TruncationCounter(model.config.max_position_embeddings)
    compute_outcomes = OutcomePipeline(model, kind, long_texts, truncated, compares)
    outcomes = map_texts([example.text for example in examples], compute_outcomes)
    if notice := truncated.notice(advice_for(model, kind)):
        notes = [*notes, notice]
    near = np.array([outcome.similarity for outcome in outcomes], np.float32) if compares else None
    return Outcomes(kind, examples, [outcome.raw for outcome in outcomes], model.calibration, notes, near)
