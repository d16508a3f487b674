"""Rows of tables that people have: csv, tsv, JSON, JSON lines, parquet, and TensorFlow Datasets.

A row comes as (its place, {column: value}). Rows are counted as a spreadsheet or an editor does: from 1, the header
among them. Nothing is repaired here: what cannot be read is an error that names the row.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypedDict

from bert_jax.errors import BertJaxError, first_line, nearest
from bert_jax.text import in_memory
from bert_jax.text.inputs import ending, expand
from bert_jax.text.lines import LineReader
from bert_jax.text.surrogates import SURROGATE, without_surrogates
from bert_jax.typed import Mistyped, fit, type_of

Row = dict[str, object]


class BadRow(BertJaxError):
    """What is wrong with the cells of one row; the other rows of its table may be sound."""


class Broken(Row):
    """Stands where a line of a table cannot be read; the lines after it can."""

    def __init__(self, error: BadRow):
        super().__init__()
        self.error = error


class Info(TypedDict):
    features: dict[str, Any]


class Metadata(TypedDict):
    """What the `datasets` library says of a parquet file in it."""

    info: Info


ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")
LONGEST_CELL = 16 << 20  # characters of a csv file's cell


def read_rows(spec: str, numbered: bool = False, keep_broken: bool = False) -> Iterator[tuple[str, Row]]:
    """Of a file, a folder, a glob, or `tfds:NAME/CONFIG:SPLIT`.

    With `numbered`, csv and tsv files have no header, and their columns are "0", "1", ... With `keep_broken`, lines
    that are not JSON come as `Broken` rows; otherwise they are refused.
    """
    for name in expand([spec]):
        yield from rows_of_file(name, numbered, keep_broken)


def rows_of_file(name: str, numbered: bool = False, keep_broken: bool = False) -> Iterator[tuple[str, Row]]:
    if name.startswith("tfds:"):
        from bert_jax.text.tensorflow_datasets import rows

        return number_rows(name, rows(name))
    if name.startswith(in_memory.PREFIX):
        return in_memory.rows_in_memory(name)
    match ending(name).lower():
        case ".parquet":
            return parquet_file_rows(name)
        case ".jsonl" | ".ndjson":
            return json_rows(name, LineReader(name), keep_broken=keep_broken)
        case ".json":
            return rows_of_list(name, json_of(name))
        case ".csv" | ".tsv" | ".txt" as kind:
            return separated_rows(name, LineReader(name), numbered, tabs=kind != ".csv")
    raise BertJaxError(f"{name}: unknown table format; supported endings: {', '.join(ENDINGS)}")


def number_rows(name: str, rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    return ((f"{name} row {number}", row) for number, row in enumerate(rows, 1))


def plain(name: str) -> str:
    """The name of a column without what people mean nothing by: case, and spaces around it."""
    return name.strip().casefold()


def columns_like(where: str, row: Mapping, names: Iterable[str]) -> list[str]:
    """The column that each name means: that very one, or else the one with the same plain name; "" for none."""
    names = list(names)
    if all(name in row for name in names):
        return names
    alike: dict[str, list[str]] = {plain(name): [] for name in names if name}
    for column in row:
        if (key := plain(column)) in alike:
            alike[key].append(column)
    columns = []
    for name in names:
        meant = [name] if not name or name in row else alike[plain(name)] or [""]
        if len(meant) > 1:
            raise BertJaxError(
                f'{where}: "{name}" may be the column "{meant[0]}" or "{meant[1]}"; rename one of them'
            )
        columns.append(meant[0])
    return columns


def table_of(where: str) -> str:
    """The place of what is the same in all rows: of a file with a header the file.

    >>> table_of("a.csv row 2"), table_of("a.jsonl row 2")
    ('a.csv', 'a.jsonl row 2')
    """
    name = where.rpartition(" row ")[0]
    return name if ending(name).lower() in (".csv", ".tsv", ".parquet") else where


def cell(where: str, row, column: str):
    """The value of a cell, in whatever case the column is written."""
    if not isinstance(row, Mapping):
        raise BadRow(f"{where} has {no_columns(row, [column])}")
    return row[column_like(where, row, column)]


def column_like(where: str, row: Mapping, column: str) -> str:
    """The column as the row or the file writes its name."""
    if not (meant := columns_like(where, row, [column])[0]):
        raise BadRow(f"{where} has {no_columns(row, [column])}")
    return meant


def optional(row: Mapping, column: str):
    """The value of a cell of a table that may lack the column; None where `column` is "", for no column."""
    return row.get(column) if column else None  # pandas writes its index as a column whose name is ""


def no_columns(row, names: Sequence[str]) -> str:
    """What to say where columns are missing."""
    # A first row taken for a header may be long.
    known = [name[:40] for name in row] if isinstance(row, Mapping) else ()
    missing = " and ".join(f'no column "{name}"' for name in names)
    hints = dict.fromkeys(nearest(name, known, "its columns") for name in names)
    return f"{missing}; {', '.join(hint for hint in hints if hint.startswith('did')) or next(iter(hints))}"


def text_in(where: str, row: Mapping, column: str) -> str:
    """The text of a cell; "" where it is empty."""
    value = cell(where, row, column)
    if value is not None and not isinstance(value, str):
        raise BadRow(f'{where}: column "{column}" holds {type_of(value)}, not text; name another')
    return value or ""


def separated_rows(
    name: str, lines: Iterable[str], numbered: bool = False, tabs: bool = False
) -> Iterator[tuple[str, Row]]:
    """Cells between tabs are taken literally, each " too; those between commas or semicolons may be quoted."""
    lines = iter(lines)
    first = next(lines, "")
    lines = chain([first], lines)
    tabs = tabs or "\t" in first  # as in the STS benchmark's .csv
    delimiter = ";" if first.count(";") > first.count(",") else ","
    header: list[str] = []
    for number, cells in enumerate(tabbed(lines) if tabs else quoted(name, lines, delimiter), 1):
        if not cells:
            continue
        where = f"{name} row {number}"
        if not header:
            header = cells
            if len(set(header)) < len(header) and not numbered:
                remedy = "rename one, or name columns by number (0, 1) if it is not a header"
                raise BertJaxError(f"{where} names a column twice; {remedy}")
            # pandas writes the numbers as a header where columns have no name.
            if not numbered or header == [str(column) for column in range(len(header))]:
                continue
        # Without a header and without quotes, columns after those that are asked for need not be alike.
        if len(cells) != len(header) and not (numbered and tabs):
            hint = "is there a tab in a text?" if tabs else "put a text with commas in quotes"
            raise BertJaxError(f"{where} has {len(cells)} columns, not {len(header)}; {hint}")
        names = map(str, range(len(cells))) if numbered else header
        yield where, dict(zip(names, cells, strict=True))


def tabbed(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        line = line.rstrip("\r\n")
        yield line.split("\t") if line else []


def quoted(name: str, lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST_CELL)
    number = 1
    try:
        for cells in csv.reader(lines, delimiter=delimiter, strict=True):
            yield cells
            number += 1
    except csv.Error as error:
        message = f'{name} row {number} has quotes that do not match ({error}); a " in quotes is written ""'
        raise BertJaxError(message) from error


def json_rows(
    name: str, lines: Iterable[str], mended: Callable[[], None] | None = None, keep_broken: bool = False
) -> Iterator[tuple[str, Row]]:
    """With `mended`, which is told of each such row, halves of characters become U+FFFD; otherwise they are refused."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{name} row {number}"
        try:
            yield where, json_row(where, line, mended)
        except BadRow as error:
            if not keep_broken:
                raise
            yield where, Broken(error)


def json_row(where: str, line: str, mended: Callable[[], None] | None) -> Row:
    try:
        row = json.loads(line.rstrip("\r\n"))
    except (ValueError, RecursionError) as error:
        raise BadRow(f"{where} is not JSON ({json_fault(error)}); write one object per line") from error
    if not isinstance(row, dict):
        raise BadRow(f'{where} is not a JSON object such as {{"text": "..."}}')
    if "\\u" in line and SURROGATE.search(spelled := json.dumps(row, ensure_ascii=False)):
        if mended is None:
            raise BadRow(
                f"{where} has a lone surrogate (\\ud800 to \\udfff), which is not a character; remove it"
            )
        row = json.loads(without_surrogates(spelled))
        mended()
    return row


def json_fault(error: ValueError | RecursionError) -> str:
    """What is wrong with a line, and where in it.

    >>> import json
    >>> for line in ('{"text": "a', '{"text": a}'):
    ...     try:
    ...         json.loads(line)
    ...     except ValueError as error:
    ...         print(json_fault(error))
    it ends inside the string that begins at character 10
    Expecting value at character 10
    """
    if not isinstance(error, json.JSONDecodeError):
        return first_line(error)
    if error.msg.startswith("Unterminated string"):
        return f"it ends inside the string that begins at character {error.pos + 1}"
    return f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"


def json_of(name: str):
    """The value that a JSON file holds."""
    try:
        text = "".join(LineReader(name, longest=0))
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # refuses halves of characters
        return value
    except (ValueError, RecursionError) as error:
        remedy = "; with one object a line, call it .jsonl" if "Extra data" in str(error) else ""
        raise BertJaxError(f"{name} is not JSON ({first_line(error)}){remedy}") from error


def rows_of_list(name: str, value) -> Iterator[tuple[str, Row]]:
    """Of a JSON list of objects, bare or under "data"."""
    if isinstance(value, dict):
        value = value.get("data")
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BertJaxError(f"{name} is not a list of JSON objects; write one object for each row")
    return number_rows(name, value)


@contextmanager
def opened_parquet(name: str):
    import pyarrow
    from pyarrow import parquet

    try:
        yield parquet.ParquetFile(name)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = first_line(error)
        raise BertJaxError(f"{name} cannot be read as parquet ({reason}); fetch it again") from error


def parquet_file_rows(name: str) -> Iterator[tuple[str, Row]]:
    with opened_parquet(name) as file:
        yield from parquet_rows(name, file)


def parquet_rows(name: str, file, columns: list[str] | None = None) -> Iterator[tuple[str, Row]]:
    columns_there = file.schema_arrow.names
    if twice := [column for column in columns_there if columns_there.count(column) > 1]:
        raise BertJaxError(f'{name} has the column "{twice[0]:.80}" twice; rename one')
    names = names_of_classes(file)
    batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=256, columns=columns))
    count = 0
    for count, (where, row) in enumerate(number_rows(name, chain.from_iterable(batches)), 1):  # noqa: B007
        for column in names.keys() & row.keys():
            row[column] = class_name(where, row[column], names[column])
        yield where, row
    if count != file.metadata.num_rows:
        stated = f"its metadata says {file.metadata.num_rows:,}"
        raise BertJaxError(f"{name} has {count:,} rows, but {stated}; fetch it again")


def class_name(where: str, value, names: tuple[str, ...]):
    """None where the class is hidden: -1, as in GLUE's test splits."""
    if isinstance(value, list):
        return [class_name(where, part, names) for part in value]
    if type(value) is not int:  # the names are not of this column
        return value
    if value >= len(names):
        raise BertJaxError(
            f"{where} has class {value}, and the file's metadata names {len(names)}; fetch it again"
        )
    return names[value] if value >= 0 else None


def names_of_classes(file) -> dict[str, tuple[str, ...]]:
    """The names of class numbers, which the `datasets` library leaves in the metadata of a parquet file."""
    try:
        stated = json.loads((file.schema_arrow.metadata or {})[b"huggingface"])
        features = fit(stated, Metadata)["info"]["features"]
    except (KeyError, ValueError, RecursionError, Mistyped):
        return {}
    names = {}
    for column, feature in features.items():
        while isinstance(feature, list) or (isinstance(feature, dict) and "feature" in feature):
            feature = (feature or [None])[0] if isinstance(feature, list) else feature["feature"]
        classes = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(classes, list) and all(isinstance(name, str) for name in classes):
            names[column] = tuple(classes)
    return names


def class_names(spec: str) -> dict[str, tuple[str, ...]]:
    """Of the columns that hold classes, the names in the order of their source, where it has one."""
    name = expand([spec])[0]
    if name.startswith("tfds:"):
        from bert_jax.text.tensorflow_datasets import class_names as tfds_names

        return tfds_names(name)
    if ending(name).lower() != ".parquet":
        return {}
    with opened_parquet(name) as file:
        return names_of_classes(file)
