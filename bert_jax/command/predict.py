"""A model's answers to the rows of a file or of standard input: what the verb `predict` runs.

They come in the order of the rows, and no more of either is held than some batches need. What arrives on a pipe is
answered at once.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import tee
from pathlib import Path
from typing import Any, BinaryIO

from bert_jax.command.arrivals import arriving, live_input
from bert_jax.data.examples.columns import EVIDENT, LABELS, TAGS, Columns, Located, usual
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.rows import peeked
from bert_jax.errors import BertJaxError
from bert_jax.files import to_json
from bert_jax.inference.batching import tokens_in_batch
from bert_jax.inference.model import Model, load
from bert_jax.output import refuse_input, streaming
from bert_jax.predictions.kind import Kind
from bert_jax.text import tables
from bert_jax.text.csv_lines import csv_lines
from bert_jax.text.inputs import ending
from bert_jax.text.lines import LineReader
from bert_jax.text.tables import plain
from bert_jax.text.truncation import Truncated, warn

NOT_ASKED = {*LABELS, *TAGS, "answers"}  # columns that may be there, right or wrong
PREFIX = "predicted_"  # of a table's columns that are ours


def write(
    directory, source: str = "-", output: str | None = None, columns: Columns = EVIDENT, long: str = "cut",
    may_be_missing: bool | None = None, precision: float | None = None,
) -> None:  # fmt: skip
    """A JSON object for each row, on standard output or in a file, which then is whole or not there; in a .csv file
    the input's columns, and those of the predictions."""
    refuse_input(output, source)

    def lines() -> Iterator[str]:
        in_table = output is not None and Path(output).suffix.lower() == ".csv"
        given = predictions(load(directory), source, columns, long, may_be_missing, precision, in_table)
        return csv_lines(given) if in_table else map(to_json, given)

    if output is None:
        for line in lines():
            print(line, flush=True)
        return
    count = 0
    with streaming(Path(output)) as file:
        for count, line in enumerate(lines(), 1):  # noqa: B007
            print(line, file=file, flush=True)
    print(f"{count:,} predictions in {output}", file=sys.stderr)


def predictions(
    model: Model,
    source: str,
    columns: Columns = EVIDENT,
    long: str = "cut",
    may_be_missing: bool | None = None,
    precision: float | None = None,
    in_table: bool = False,
) -> Iterator[dict]:
    """An object for each row; `in_table` the row itself, or of what is no table the text, with further columns. With a
    `precision`, each prediction tells whether a calibrated model abstains from it."""
    kind = model.kind.with_options(may_be_missing=may_be_missing)
    enough = None if precision is None else kind.floor(model.calibration, precision)
    form = kind.as_cells if in_table else kind.as_json

    def read(raw) -> dict[str, Any]:
        return form(raw, model.calibration, enough)

    for example, row, prediction in answered(model, kind, source, columns, long, read):
        if in_table:
            yield beside(row or {**id_of(example), "text": kind.text(example)}, prediction, example.where)
        else:
            yield id_of(example) | prediction


def beside(row: tables.Row, prediction: dict[str, Any], where: str) -> dict[str, Any]:
    """The row with the prediction in further columns."""
    ours = {PREFIX + name: value for name, value in prediction.items()}
    if taken := row.keys() & ours.keys():
        raise BertJaxError(f'{where} has a column "{min(taken)}" already; rename it, or leave it out')
    return row | ours


def id_of(example: Example) -> dict[str, str]:
    return {"id": example.id} if example.id else {}


def answered(
    model: Model, kind: Kind, source: str, columns: Columns, long: str, read: Callable
) -> Iterator[tuple[Example, tables.Row, dict[str, Any]]]:
    """Each example with its row of the input and with what `read` makes of the outcome."""
    given = Input(source, live_input() if source == "-" else None)
    first, examples = peeked(given.examples(model.origin.remembered(columns), kind))
    if first is None:
        raise BertJaxError(
            f"{'standard input' if source == '-' else source} is empty: there is nothing to predict"
        )
    if given.live:
        pairs = answered_at_once(model, kind, examples, long, read)
    else:
        examples, read_ahead = tee(examples)
        texts = (example.text for example in read_ahead)
        pairs = zip(examples, model.outcomes(kind, texts, read, long), strict=True)
    for example, prediction in pairs:
        yield example, given.row_of(example), prediction


def answered_at_once(
    model: Model, kind: Kind, examples: Iterator[Example], long: str, read: Callable
) -> Iterator[tuple[Example, dict[str, Any]]]:
    truncated = Truncated(model.config.max_positions)
    for arrived in arriving(examples, most=tokens_in_batch() // 2):
        before = truncated.truncated
        texts = [example.text for example in arrived]
        yield from zip(arrived, model.outcomes(kind, texts, read, long, truncated), strict=True)
        if truncated.truncated and not before:
            warn(truncated.notice('long="windows" reads all of them'))


@dataclass(frozen=True)
class Input:
    """A file or standard input, and the rows of it that were read and are not answered yet."""

    source: str
    live: BinaryIO | None = None  # standard input, where it is read as it is written
    rows: deque[Located] = field(default_factory=deque)

    def examples(self, columns: Columns, kind: Kind) -> Iterator[Example]:
        """Without their labels, whether there are any or not."""
        source = self.source
        suffix = "" if source == "-" or source.startswith("tfds:") else ending(source)
        if (examples := kind.read_file(source, columns, suffix)) is not None:
            return examples
        is_plain = source == "-" or suffix == ".txt"
        first, rows = peeked(self.line_rows() if is_plain else tables.read_rows(source, columns.numbered))
        where, row = first or ("", {})
        columns = columns.of(where, row)
        if not columns.id:
            columns = replace(columns, id=usual(where, row, ["id"]))
        return kind.read_rows(self.without_labels(rows, columns), columns, row)

    def line_rows(self) -> Iterator[Located]:
        """Lines that are JSON objects, if the first one is, or else each a text."""
        reader = LineReader(self.source, file=self.live)
        first, lines = peeked(reader)
        if first and first.lstrip().startswith("{"):
            return tables.json_rows(reader.name, lines)
        return tables.number_rows(reader.name, ({"text": line.rstrip("\r\n")} for line in lines))

    def without_labels(self, rows: Iterator[Located], columns: Columns) -> Iterator[Located]:
        not_asked = NOT_ASKED - set(map(plain, columns.named))
        for where, row in rows:
            self.rows.append((where, row))
            yield where, {name: value for name, value in row.items() if plain(name) not in not_asked}

    def row_of(self, example: Example) -> tables.Row:
        """The row of the next example; {} where the input is no table."""
        while self.rows:
            where, row = self.rows.popleft()
            if where == example.where:  # and not a bad row, which was skipped
                return row
        return {}
