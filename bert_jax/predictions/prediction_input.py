"""Examples without labels, as input for predictions: the rows of a file or of standard input."""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO, NamedTuple

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.column_names import ID, NOT_PREDICTED_FROM, TEXTS
from bert_jax.data.examples.columns import ColumnsFromTraining, ExampleColumns, LocatedRow, find_usual_column
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_parsing import peek, peek_readable_row
from bert_jax.predictions.example_reader import ExampleReader
from bert_jax.predictions.kind import Kind
from bert_jax.text import tables
from bert_jax.text.input_files import file_extension
from bert_jax.text.line_reader import LineReader
from bert_jax.text.tables import normalize_column


class InputRow(NamedTuple):
    number: int  # from 1, of all rows of the input
    where: str
    cells: tables.Row


NO_ROW = InputRow(0, "", {})


@dataclass(frozen=True)
class PredictionInput:
    """A file or standard input, and the rows that were read but have no prediction yet."""

    source: str
    live: BinaryIO | None = None  # standard input, if it is read while it is still being written
    rows: deque[InputRow] = field(default_factory=deque)

    def examples(self, columns: ExampleColumns, reader: ExampleReader) -> Iterator[Example]:
        """Read the examples without labels, even if the input has labels."""
        source = self.source
        suffix = "" if source == "-" or source.startswith("tfds:") else file_extension(source)
        if (examples := reader.read_unlabelled(source, columns, suffix)) is not None:
            return examples
        is_plain = source == "-" or suffix == ".txt"
        first, rows = peek_readable_row(
            self.line_rows()
            if is_plain
            else tables.read_table_rows(source, columns.numbered, keep_broken=True)
        )
        where, row = first or ("", {})
        columns = replace(columns.resolve(where, row), label="")  # drop a remembered label column
        columns = reader.complete_columns(where, row, columns)
        if not columns.id:
            columns = replace(columns, id=find_usual_column(where, row, [ID]))
        return reader.read_unlabelled_rows(self.drop_labels(rows, columns), columns, row)

    def line_rows(self) -> Iterator[LocatedRow]:
        """Read lines as JSON objects if the first line is one, otherwise each line as a text."""
        reader = LineReader(self.source, file=self.live)
        first, lines = peek(reader)
        if first and first.lstrip().startswith("{"):
            return tables.json_rows(reader.name, lines, keep_broken=True)
        return tables.number_rows(reader.name, ({TEXTS[0]: line.rstrip("\r\n")} for line in lines))

    def drop_labels(self, rows: Iterator[LocatedRow], columns: ExampleColumns) -> Iterator[LocatedRow]:
        ignored = NOT_PREDICTED_FROM - set(map(normalize_column, columns.named))
        for number, (where, row) in enumerate(rows, 1):
            self.rows.append(InputRow(number, where, row))
            if isinstance(row, tables.BrokenRow):
                yield where, row
                continue
            yield where, {name: value for name, value in row.items() if normalize_column(name) not in ignored}

    def row_of(self, example: Example) -> InputRow:
        """Return the row of the next example; NO_ROW if the input is not a table."""
        while self.rows:
            row = self.rows.popleft()
            if row.where == example.where:  # otherwise it is a bad row, which was skipped
                return row
        return NO_ROW


def read_out_of_scope(source: str, columns: ExampleColumns, kind: Kind) -> list[Example]:
    """Read texts that a model should call out of scope. The file need not have the columns of the training data."""
    if not kind.detects_out_of_scope:
        raise BertJaxError(
            f"{source}: models that predict {kind.name} cannot recognise out-of-scope texts; leave the file out"
        )
    if os.path.isdir(source):
        raise BertJaxError(f"{source} is a folder; out-of-scope texts are read from one file, name that")
    columns = ColumnsFromTraining(skip_bad=columns.skip_bad, training_columns=columns)
    if examples := list(PredictionInput(source).examples(columns, kind.reader)):
        return examples
    raise BertJaxError(f"{source} is empty: there is no text")
