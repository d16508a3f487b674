"""The verb `predict`: a model's predictions for the rows of a file or of standard input.

Predictions come in the order of the rows, and only some batches are held in memory. Rows that arrive on a pipe are
predicted at once.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Any

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.output import open_output, refuse_input
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_parsing import peeked
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.inference.live_input import group_arrivals, open_live_input
from bert_jax.inference.model import Model, load
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.out_of_scope import OutOfScopeDetector
from bert_jax.predictions.prediction_input import PredictionInput
from bert_jax.text import tables
from bert_jax.text.csv_lines import csv_lines
from bert_jax.text.truncation import TruncationCounter

COLUMN_PREFIX = "predicted_"  # of the columns that we add to a table
OTHER_TABLES = (".tsv", ".parquet", ".xlsx", ".xls")


@dataclass(frozen=True)
class PredictionOptions:
    """How texts are read, and what is predicted."""

    long_texts: str = "truncate"
    may_be_missing: bool | None = None
    precision: float | None = None  # abstain from predictions so that this share of the others is correct
    # Mark texts as out of scope if their in-distribution p-value is below this.
    out_of_scope: float | None = None


def write_predictions(
    directory,
    source: str = "-",
    output: str | None = None,
    columns: ExampleColumns = AUTODETECT,
    options: PredictionOptions = PredictionOptions(),
    rows_of: Callable[..., Iterator[dict]] | None = None,  # by default `predict_rows`
) -> None:
    """Write the predictions to standard output or to a file, which is written completely or not at all.

    Write a JSON object for each row; in a .csv file, the input's columns and those of the predictions.
    """
    refuse_input(output, source)
    if output is not None and Path(output).suffix.lower() in OTHER_TABLES:
        raise BertJaxError(f"{output}: predictions are written as .jsonl or .csv; name one of these")
    abstained = 0

    def lines() -> Iterator[str]:
        in_table = output is not None and Path(output).suffix.lower() == ".csv"
        given = noted((rows_of or predict_rows)(load(directory), source, columns, options, in_table))
        return csv_lines(given) if in_table else map(to_json, given)

    def noted(rows: Iterator[dict]) -> Iterator[dict]:
        nonlocal abstained
        for row in rows:
            abstained += count_abstentions(row)
            yield row

    if output is None:
        for line in lines():
            print(line, flush=True)
        return
    count = 0
    with open_output(Path(output)) as file:
        for count, line in enumerate(lines(), 1):  # noqa: B007
            print(line, file=file, flush=True)
    abstains = "" if options.precision is None else f"; the model abstains from {abstained:,}"
    print(f"{pluralize(count, 'prediction')} in {output}{abstains}", file=sys.stderr)


def count_abstentions(row: dict[str, Any]) -> int:
    """Count the predictions of a row that the model abstains from: that of the row, or those of its spans.

    >>> spans = [{"abstained": True}, {"abstained": False}]
    >>> count_abstentions({"predicted_abstained": True}), count_abstentions({"spans": spans})
    (1, 1)
    """
    spans: list[dict] = next(
        (row[name] for name in ("spans", f"{COLUMN_PREFIX}spans") if isinstance(row.get(name), list)), []
    )
    return sum(
        part.get(name) is True
        for part in (row, *spans)
        for name in ("abstained", f"{COLUMN_PREFIX}abstained")
    )


def predict_rows(
    model: Model,
    source: str,
    columns: ExampleColumns = AUTODETECT,
    options: PredictionOptions = PredictionOptions(),
    in_table: bool = False,
) -> Iterator[dict]:
    """Yield an object for each row.

    With `in_table` it also has the columns of the row, or the text if the input is not a table.
    """
    kind = model.kind.with_options(may_be_missing=options.may_be_missing)
    read, scoped = make_reader(model, kind, options, in_table), options.out_of_scope is not None
    for example, row, prediction in predict_examples(
        model, kind, source, columns, options.long_texts, read, scoped
    ):
        if in_table:
            yield add_prediction_columns(row or text_fields(kind, example), prediction, example.where)
        else:
            yield id_field(example) | prediction


def make_reader(
    model: Model, kind: Kind, options: PredictionOptions, in_table: bool
) -> Callable[..., dict[str, Any]]:
    """Return a function that makes a prediction from an outcome and, if options.out_of_scope is set, from the
    similarity of a text."""
    min_confidence = (
        None if options.precision is None else kind.confidence_threshold(model.calibration, options.precision)
    )
    form = kind.to_cells if in_table else kind.to_record
    if options.out_of_scope is not None:
        model.scope.check_usable(options.out_of_scope)

    def read(raw, similarity: float | None = None) -> dict[str, Any]:
        return form(raw, model.calibration, min_confidence) | scope_fields(
            model.scope, similarity, options.out_of_scope
        )

    return read


def text_fields(kind: Kind, example: Example) -> tables.Row:
    return {**id_field(example), "text": kind.example_text(example)}


def add_prediction_columns(row: tables.Row, prediction: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the row with the prediction in additional columns."""
    prediction_columns = {COLUMN_PREFIX + name: value for name, value in prediction.items()}
    if taken := row.keys() & prediction_columns.keys():
        raise BertJaxError(f'{where} has a column "{min(taken)}" already; rename it, or leave it out')
    return row | prediction_columns


def scope_fields(
    scope: OutOfScopeDetector, similarity: float | None, out_of_scope: float | None
) -> dict[str, Any]:
    """Return the fields that say whether a text is out of scope, if that is asked for."""
    if similarity is None or out_of_scope is None:
        return {}
    share = float(scope.p_value(similarity))
    return {"in_distribution_p_value": round(share, 6), "out_of_scope": share < out_of_scope}


def id_field(example: Example) -> dict[str, str]:
    return {"id": example.id} if example.id else {}


def predict_examples(
    model: Model,
    kind: Kind,
    source: str,
    columns: ExampleColumns,
    long_texts: str,
    read: Callable,
    scoped: bool = False,
) -> Iterator[tuple[Example, tables.Row, dict[str, Any]]]:
    """Yield each example with its input row and the result of `read`; `scoped` is as in `Runner.compute_outcomes`."""
    given, truncated = (
        PredictionInput(source, open_live_input() if source == "-" else None),
        TruncationCounter(model.config.max_position_embeddings),
    )
    first, examples = peeked(given.examples(model.origin.complete_columns(columns), kind))
    if first is None:
        raise empty_input_error(source)
    if given.live:
        pairs = predict_live(model, kind, examples, long_texts, read, truncated, scoped)
    else:
        examples, read_ahead = tee(examples)
        texts = (example.text for example in read_ahead)
        pairs = zip(
            examples, model.compute_outcomes(kind, texts, read, long_texts, truncated, scoped), strict=True
        )
    has_warned = False
    for example, prediction in pairs:
        if (
            given.live and truncated.truncated and not has_warned
        ):  # tell now, because the end may be hours away
            warn_truncated(truncated)
            has_warned = True
        yield example, given.row_of(example), prediction
    if not has_warned:
        warn_truncated(truncated)


def warn_truncated(truncated: TruncationCounter) -> None:
    if notice := truncated.notice("--long-texts windows reads all of them"):
        warn_caller(notice)


def empty_input_error(source: str) -> BertJaxError:
    name = "standard input" if source == "-" else source
    return BertJaxError(f"{name} is empty: there is nothing to predict")


def predict_live(
    model: Model,
    kind: Kind,
    examples: Iterator[Example],
    long_texts: str,
    read: Callable,
    truncated: TruncationCounter,
    scoped: bool = False,
) -> Iterator[tuple[Example, dict[str, Any]]]:
    """Yield each example with its prediction as soon as the example arrives, alone or with others."""
    for arrived in group_arrivals(examples, most=tokens_per_batch() // 2):
        texts = [example.text for example in arrived]
        yield from zip(
            arrived, model.compute_outcomes(kind, texts, read, long_texts, truncated, scoped), strict=True
        )
