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

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.output import refuse_input, streaming
from bert_jax.core.terminal import counted
from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.rows import peeked
from bert_jax.inference.batching import tokens_in_batch
from bert_jax.inference.live_input import arriving, live_input
from bert_jax.inference.model import Model, load
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.scope import Scope
from bert_jax.predictions.unlabelled import Input
from bert_jax.text import tables
from bert_jax.text.csv_lines import csv_lines
from bert_jax.text.truncation import Truncated, warn

PREFIX = "predicted_"  # of the columns that we add to a table
OTHER_TABLES = (".tsv", ".parquet", ".xlsx", ".xls")


@dataclass(frozen=True)
class Options:
    """How texts are read, and what is predicted."""

    long: str = "cut"
    may_be_missing: bool | None = None
    precision: float | None = None  # abstain from predictions so that this share of the others is correct
    # Mark texts as foreign if they are less similar to the training texts than all but this share of known texts.
    foreign: float | None = None


def write(
    directory,
    source: str = "-",
    output: str | None = None,
    columns: Columns = EVIDENT,
    options: Options = Options(),
    rows_of: Callable[..., Iterator[dict]] | None = None,  # by default `predictions`
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
        given = noted((rows_of or predictions)(load(directory), source, columns, options, in_table))
        return csv_lines(given) if in_table else map(to_json, given)

    def noted(rows: Iterator[dict]) -> Iterator[dict]:
        nonlocal abstained
        for row in rows:
            abstained += abstentions(row)
            yield row

    if output is None:
        for line in lines():
            print(line, flush=True)
        return
    count = 0
    with streaming(Path(output)) as file:
        for count, line in enumerate(lines(), 1):  # noqa: B007
            print(line, file=file, flush=True)
    abstains = "" if options.precision is None else f"; the model abstains from {abstained:,}"
    print(f"{counted(count, 'prediction')} in {output}{abstains}", file=sys.stderr)


def abstentions(row: dict[str, Any]) -> int:
    """Count the predictions of a row that the model abstains from: that of the row, or those of its spans.

    >>> abstentions({"predicted_abstained": True}), abstentions({"spans": [{"abstained": True}, {"abstained": False}]})
    (1, 1)
    """
    spans: list[dict] = next(
        (row[name] for name in ("spans", f"{PREFIX}spans") if isinstance(row.get(name), list)), []
    )
    return sum(
        part.get(name) is True for part in (row, *spans) for name in ("abstained", f"{PREFIX}abstained")
    )


def predictions(
    model: Model,
    source: str,
    columns: Columns = EVIDENT,
    options: Options = Options(),
    in_table: bool = False,
) -> Iterator[dict]:
    """Yield an object for each row.

    With `in_table` it also has the columns of the row, or the text if the input is not a table.
    """
    kind = model.kind.with_options(may_be_missing=options.may_be_missing)
    read, scoped = reader_of(model, kind, options, in_table), options.foreign is not None
    for example, row, prediction in answered(model, kind, source, columns, options.long, read, scoped):
        if in_table:
            yield beside(row or with_text(kind, example), prediction, example.where)
        else:
            yield id_of(example) | prediction


def reader_of(model: Model, kind: Kind, options: Options, in_table: bool) -> Callable[..., dict[str, Any]]:
    """Return a function that makes a prediction from an outcome and, if options.foreign is set, a text's similarity."""
    enough = None if options.precision is None else kind.floor(model.calibration, options.precision)
    form = kind.as_cells if in_table else kind.as_json
    if options.foreign is not None:
        model.scope.check(options.foreign)

    def read(raw, similarity: float | None = None) -> dict[str, Any]:
        return form(raw, model.calibration, enough) | of_scope(model.scope, similarity, options.foreign)

    return read


def with_text(kind: Kind, example: Example) -> tables.Row:
    return {**id_of(example), "text": kind.text(example)}


def beside(row: tables.Row, prediction: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the row with the prediction in additional columns."""
    ours = {PREFIX + name: value for name, value in prediction.items()}
    if taken := row.keys() & ours.keys():
        raise BertJaxError(f'{where} has a column "{min(taken)}" already; rename it, or leave it out')
    return row | ours


def of_scope(scope: Scope, similarity: float | None, foreign: float | None) -> dict[str, Any]:
    """Return the fields that say whether a text is foreign, if that is asked for."""
    if similarity is None or foreign is None:
        return {}
    share = float(scope.share(similarity))
    return {"in_scope": round(share, 6), "foreign": share < foreign}


def id_of(example: Example) -> dict[str, str]:
    return {"id": example.id} if example.id else {}


def answered(
    model: Model, kind: Kind, source: str, columns: Columns, long: str, read: Callable, scoped: bool = False
) -> Iterator[tuple[Example, tables.Row, dict[str, Any]]]:
    """Yield each example with its input row and the result of `read`; `scoped` is as in `Runner.outcomes`."""
    given, truncated = (
        Input(source, live_input() if source == "-" else None),
        Truncated(model.config.max_positions),
    )
    first, examples = peeked(given.examples(model.origin.remembered(columns), kind))
    if first is None:
        raise empty(source)
    if given.live:
        pairs = answered_at_once(model, kind, examples, long, read, truncated, scoped)
    else:
        examples, read_ahead = tee(examples)
        texts = (example.text for example in read_ahead)
        pairs = zip(examples, model.outcomes(kind, texts, read, long, truncated, scoped), strict=True)
    told = False
    for example, prediction in pairs:
        if given.live and truncated.truncated and not told:  # tell now, because the end may be hours away
            tell_of_truncated(truncated)
            told = True
        yield example, given.row_of(example), prediction
    if not told:
        tell_of_truncated(truncated)


def tell_of_truncated(truncated: Truncated) -> None:
    if notice := truncated.notice("--long windows reads all of them"):
        warn(notice)


def empty(source: str) -> BertJaxError:
    name = "standard input" if source == "-" else source
    return BertJaxError(f"{name} is empty: there is nothing to predict")


def answered_at_once(
    model: Model,
    kind: Kind,
    examples: Iterator[Example],
    long: str,
    read: Callable,
    truncated: Truncated,
    scoped: bool = False,
) -> Iterator[tuple[Example, dict[str, Any]]]:
    """Yield each example with its prediction as soon as the example arrives, alone or with others."""
    for arrived in arriving(examples, most=tokens_in_batch() // 2):
        texts = [example.text for example in arrived]
        yield from zip(arrived, model.outcomes(kind, texts, read, long, truncated, scoped), strict=True)
