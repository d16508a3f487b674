"""`predict --rank-for-labelling`: rank the unlabelled texts of a file, the most useful to label first.

All texts are read before the first is written, and are held in memory with a vector each.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.inference.in_distribution import mean_state_vectors
from bert_jax.inference.live_input import open_live_input
from bert_jax.inference.model import Model
from bert_jax.inference.predict_file import (
    PredictionOptions,
    add_prediction_columns,
    empty_input_error,
    make_reader,
    text_fields,
    warn_truncated,
)
from bert_jax.predictions.active_learning import rank_by_usefulness
from bert_jax.predictions.prediction_input import PredictionInput
from bert_jax.text.truncation import TruncationCounter

MAX_TEXTS = 100_000  # texts, which with their vectors take some hundred MB
RANK = "rank"


def rank_rows(
    model: Model, source: str, columns: ExampleColumns, options: PredictionOptions, in_table: bool
) -> Iterator[dict]:
    """Yield predictions as `predictions` does, but in order of usefulness, and each with its rank and text or row."""
    kind = model.kind.with_options(may_be_missing=options.may_be_missing)
    read = make_reader(model, kind, options, in_table)

    def judged(raw, *similarity) -> tuple[dict, float]:
        return read(raw, *similarity), kind.uncertainty(raw, model.calibration)

    given = PredictionInput(source, open_live_input() if source == "-" else None)
    examples = list(islice(given.examples(model.origin.complete_columns(columns), kind), MAX_TEXTS + 1))
    if not examples:
        raise empty_input_error(source)
    if len(examples) > MAX_TEXTS:
        raise BertJaxError(
            f"{source} has more than {MAX_TEXTS:,} texts, the most that can be ranked; draw a random sample of them"
        )
    rows = [given.row_of(example) for example in examples]
    texts = [example.text for example in examples]
    truncated = TruncationCounter(model.config.max_position_embeddings)
    outcomes = model.compute_outcomes(
        kind, texts, judged, options.long_texts, truncated, options.out_of_scope is not None
    )
    warn_truncated(truncated)
    predictions, uncertainties = zip(*outcomes, strict=True)
    size = tokens_per_batch()
    vectors = [mean_state_vectors(model, texts[first : first + size]) for first in range(0, len(texts), size)]
    for rank, i in enumerate(
        rank_by_usefulness(np.concatenate(vectors), np.array(uncertainties)).tolist(), 1
    ):
        if in_table:
            row = add_prediction_columns(
                rows[i] or text_fields(kind, examples[i]), predictions[i], examples[i].where
            )
            if RANK in row:
                raise BertJaxError(
                    f'{examples[i].where} has a column "{RANK}" already; rename it, or leave it out'
                )
        else:
            row = text_fields(kind, examples[i]) | predictions[i]
        yield row | {RANK: rank}
