"""`predict --rank-for-labelling`: rank the unlabelled texts of a file, the most useful to label first.

All texts are read before the first is written, and are held in memory with a vector each.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.inference.in_distribution import mean_state_vectors
from bert_jax.inference.row_predictor import RowPredictor, add_columns
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import advice_for
from bert_jax.predictions.active_learning import rank_by_usefulness
from bert_jax.text.truncation import TruncationCounter

MAX_TEXTS = 100_000  # texts, which with their vectors take some hundred MB


def rank_rows(predictor: RowPredictor, source: str, columns: ExampleColumns = AUTODETECT) -> Iterator[dict]:
    """Yield rows as `predict_rows` does, but in order of usefulness, and each with its rank and text or input row."""
    model, kind = predictor.model, predictor.kind
    given, unread = predictor.read_input(source, columns)
    examples = list(islice(unread, MAX_TEXTS + 1))
    if len(examples) > MAX_TEXTS:
        raise BertJaxError(
            f"{source} has more than {MAX_TEXTS:,} texts, the most that can be ranked; draw a random sample of them"
        )
    rows = [given.row_of(example) for example in examples]
    texts = [example.text for example in examples]
    truncated = TruncationCounter(model.config.max_position_embeddings)
    compute_outcomes = predictor.outcome_pipeline(truncated)

    def judge_chunk(chunk: Sequence) -> Iterator[tuple[dict, float]]:
        for outcome in compute_outcomes(chunk):
            yield predictor.make_prediction(outcome), kind.uncertainty(outcome.raw, model.calibration)

    predictions, uncertainties = zip(*map_texts(texts, judge_chunk), strict=True)
    if notice := truncated.notice(advice_for(model, kind)):
        warn_caller(notice)
    size = tokens_per_batch()
    vectors = [mean_state_vectors(model, texts[first : first + size]) for first in range(0, len(texts), size)]
    order = rank_by_usefulness(np.concatenate(vectors), np.array(uncertainties))
    for rank, i in enumerate(order.tolist(), 1):
        row = predictor.make_row(examples[i], rows[i], predictions[i])
        if not predictor.in_table:
            row = predictor.text_fields(examples[i]) | row
        yield add_columns(row, {"rank": rank}, examples[i].where)
