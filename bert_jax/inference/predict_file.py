"""The verb `predict`: a model's predictions for the rows of a file or of standard input.

Predictions come in the order of the rows, and only some batches are held in memory. Rows that arrive on a pipe are
predicted at once.
"""

from collections.abc import Iterator
from typing import TextIO

from bert_jax.core.caller_warning import warn_caller
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.data.examples.example import Example
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.inference.live_input import group_arrivals
from bert_jax.inference.row_predictor import RowPredictor
from bert_jax.inference.streaming import stream_results
from bert_jax.inference.text_outcomes import advice_for
from bert_jax.text.csv_lines import csv_lines
from bert_jax.text.input_files import file_extension
from bert_jax.text.tables import TABLE_EXTENSIONS, count_rows
from bert_jax.text.truncation import TruncationCounter, TruncationWarner


def predict_rows(
    predictor: RowPredictor, source: str, columns: ExampleColumns = AUTODETECT
) -> Iterator[dict]:
    """Yield the row of each prediction."""
    given, examples = predictor.read_input(source, columns)
    max_length = predictor.model.config.max_position_embeddings
    # On a pipe, warn of truncated texts at once, because the end may be hours away.
    advice = advice_for(predictor.model, predictor.kind)
    truncated = TruncationWarner(max_length, advice) if given.live else TruncationCounter(max_length)
    compute_outcomes = predictor.outcome_pipeline(truncated)

    def predict_chunk(chunk: list[Example]) -> Iterator[dict]:
        outcomes = compute_outcomes([example.text for example in chunk])
        for example, outcome in zip(chunk, outcomes, strict=True):
            yield predictor.make_row(example, given.row_of(example), predictor.make_prediction(outcome))

    if given.live:
        for arrived in group_arrivals(examples, most=tokens_per_batch() // 2):
            yield from predict_chunk(arrived)
        return
    total = count_rows(source) if file_extension(source) in TABLE_EXTENSIONS else None
    yield from stream_results(examples, predict_chunk, total)
    if notice := truncated.notice(advice):
        warn_caller(notice)


def write_rows(predictor: RowPredictor, rows: Iterator[dict], file: TextIO) -> int:
    """Write each row as soon as it is there, as a line of a table, of JSON or of a terminal; return their number."""
    count = 0
    lines = csv_lines(rows) if predictor.in_table else map(predictor.to_line, rows)
    for count, line in enumerate(lines, 1):  # noqa: B007
        print(line, file=file, flush=True)
    return count
