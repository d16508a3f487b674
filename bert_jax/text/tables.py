"""Read rows of tables: csv, tsv, JSON, JSON lines, parquet, and TensorFlow Datasets.

A row comes as (place, {column: value}). Rows are counted as in a spreadsheet or an editor: from 1, including the
header. A row that cannot be read is an error that names it; only `json_rows` repairs rows, if it is asked to.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError, first_line, suggest_name
from bert_jax.core.surrogates import holds_surrogates, replace_surrogates
from bert_jax.core.typed_json import type_name
from bert_jax.text.input_files import MEMORY_PREFIX, expand_inputs, file_extension, read_memory_table
from bert_jax.text.line_reader import LineReader

Row = dict[str, object]


class BadRowError(BertJaxError):
    """Raised for one bad row; the other rows of its table may be sound."""


class BrokenRow(Row):
    """Takes the place of a row that cannot be read, so that the rows after it can."""

    def __init__(self, error: BadRowError):
        super().__init__()
        self.error = error


TABLE_EXTENSIONS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")
LONGEST_CELL = 16 << 20  # characters in a cell of a csv file


def read_table_rows(
    spec: str, numbered: bool = False, keep_broken: bool = False
) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a file, a folder, a glob, `tfds:NAME/CONFIG:SPLIT`, or `memory:NAME`.

    With `numbered`, csv and tsv files have no header, and their columns are "0", "1", ... With `keep_broken`, bad
    lines of JSON lines come as `BrokenRow` rows; otherwise they are errors.
    """
    for name in expand_inputs([spec]):
        yield from read_file_rows(name, numbered, keep_broken)


def read_file_rows(name: str, numbered: bool = False, keep_broken: bool = False) -> Iterator[tuple[str, Row]]:
    if name.startswith("tfds:"):
        from bert_jax.text.tensorflow_datasets import read_tfds_rows

        return number_rows(name, read_tfds_rows(name))
    if name.startswith(MEMORY_PREFIX):
        rows = read_memory_table(name)
        return ((where, keep_row(partial(refuse_surrogates, where, row), keep_broken)) for where, row in rows)
    match file_extension(name):
        case ".parquet":
            return parquet_file_rows(name)
        case ".jsonl" | ".ndjson":
            return json_rows(name, LineReader(name), keep_broken=keep_broken)
        case ".json":
            return rows_of_list(name, read_json_value(name))
        case ".csv" | ".tsv" | ".txt" as extension:
            return separated_rows(name, LineReader(name), numbered, tabs=extension != ".csv")
    raise BertJaxError(f"{name}: unknown table format; supported endings: {', '.join(TABLE_EXTENSIONS)}")


def number_rows(name: str, rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    return ((f"{name} row {number}", row) for number, row in enumerate(rows, 1))


def normalize_column(name: str) -> str:
    """Return a column's name without differences that have no meaning: case, and spaces around it."""
    return name.strip().casefold()


def match_columns(where: str, row: Mapping, names: Iterable[str]) -> list[str]:
    """Return the column that each name means: the same name, or else the same plain name; "" if there is none."""
    names = list(names)
    if all(name in row for name in names):
        return names
    same_name: dict[str, list[str]] = {normalize_column(name): [] for name in names if name}
    for column in row:
        if (key := normalize_column(column)) in same_name:
            same_name[key].append(column)
    columns = []
    for name in names:
        meant = [name] if not name or name in row else same_name[normalize_column(name)] or [""]
        if len(meant) > 1:
            raise BertJaxError(
                f'{where}: "{name}" may be the column "{meant[0]}" or "{meant[1]}"; rename one of them'
            )
        columns.append(meant[0])
    return columns


def table_location(where: str) -> str:
    """Return the place to name for an error that all rows share: for a file with a header, the file.

    >>> table_location("a.csv row 2"), table_location("a.jsonl row 2")
    ('a.csv', 'a.jsonl row 2')
    """
    name = where.rpartition(" row ")[0]
    return name if file_extension(name) in (".csv", ".tsv", ".parquet") else where


def from_row_on(where: str) -> str:
    """Describe the rows from this one to the end of the table.

    >>> from_row_on("a.csv row 2")
    'a.csv, from row 2 on'
    """
    name, _, number = where.rpartition(" row ")
    return f"{name}, from row {number} on" if name else f"from {where} on"


def get_cell(where: str, row, column: str):
    """Return the value of a cell; case and outer spaces of the column's name do not matter."""
    return row[match_column(where, row, column)]


def match_column(where: str, row, column: str) -> str:
    """Return the column's name as it is written in the row or the file."""
    if not (isinstance(row, Mapping) and (meant := match_columns(where, row, [column])[0])):
        raise BadRowError(f"{where} has {no_columns(row, [column])}")
    return meant


def get_optional_cell(row: Mapping, column: str):
    """Return the value of a cell, or None if the table lacks the column or `column` is "", which means no column."""
    return row.get(column) if column else None  # a column named "" may exist: pandas writes its index as such


def no_columns(row, names: Sequence[str]) -> str:
    # Names are shortened: a first row that was taken for a header may be long.
    known = [name[:40] for name in row] if isinstance(row, Mapping) else ()
    missing = " and ".join(f'no column "{name}"' for name in names)
    hints = dict.fromkeys(suggest_name(name, known, "its columns") for name in names)
    return f"{missing}; {', '.join(hint for hint in hints if hint.startswith('did')) or next(iter(hints))}"


def get_text_cell(where: str, row: Mapping, column: str) -> str:
    """Return the text of a cell; "" if it is empty."""
    value = get_cell(where, row, column)
    if value is not None and not isinstance(value, str):
        raise BadRowError(
            f'{where}: column "{column}" holds {type_name(value)}, not text; name another column'
        )
    return value or ""


def separated_rows(name: str, lines: Iterable[str], numbered: bool, tabs: bool) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a csv or tsv file. Cells between tabs are literal, quotes included; cells between commas or
    semicolons may be quoted."""
    lines = iter(lines)
    first = next(lines, "")
    lines = chain([first], lines)
    tabs = tabs or "\t" in first  # as in the STS benchmark's .csv
    delimiter = ";" if first.count(";") > first.count(",") else ","
    header: list[str] = []
    for number, cells in enumerate(split_tabs(lines) if tabs else parse_csv_lines(name, lines, delimiter), 1):
        if not cells:
            continue
        where = f"{name} row {number}"
        if not header:
            header = cells
            if len(set(header)) < len(header) and not numbered:
                remedy = "rename one, or name columns by number (0, 1) if it is not a header"
                raise BertJaxError(f"{where} names a column twice; {remedy}")
            # pandas writes the numbers as a header if columns have no names.
            if not numbered or header == [str(column) for column in range(len(header))]:
                continue
        # In a tsv file without a header, rows may differ in the columns after those that are used.
        if len(cells) != len(header) and not (numbered and tabs):
            hint = "is there a tab in a text?" if tabs else "put a text with commas in quotes"
            raise BertJaxError(f"{where} has {len(cells)} columns, not {len(header)}; {hint}")
        names = map(str, range(len(cells))) if numbered else header
        yield where, dict(zip(names, cells, strict=True))


def split_tabs(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        line = line.rstrip("\r\n")
        yield line.split("\t") if line else []


def parse_csv_lines(name: str, lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
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
    """Yield the rows of JSON lines. Lone surrogates are errors, but with `mended` they become U+FFFD, and it is called
    for each row that had some."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{name} row {number}"
        yield where, keep_row(partial(json_row, where, line, mended), keep_broken)


def keep_row(read: Callable[[], Row], keep_broken: bool) -> Row:
    try:
        return read()
    except BadRowError as error:
        if not keep_broken:
            raise
        return BrokenRow(error)


def json_row(where: str, line: str, mended: Callable[[], None] | None) -> Row:
    try:
        row = json.loads(line.rstrip("\r\n"))
        broken = "\\u" in line and holds_surrogates(row)
    except (ValueError, RecursionError) as error:
        raise BadRowError(f"{where} is not JSON ({json_fault(error)}); write one object per line") from error
    if not isinstance(row, dict):
        raise BadRowError(f'{where} is not a JSON object such as {{"text": "..."}}')
    if broken and mended:
        row = json.loads(replace_surrogates(json.dumps(row, ensure_ascii=False)))
        mended()
    elif broken:
        refuse_surrogates(where, row)
    return row


def refuse_surrogates(where: str, row: Any) -> Any:
    """Return a row without lone surrogates; refuse one with some, because it could not be written again."""
    if holds_surrogates(row):
        raise BadRowError(
            f"{where} has a lone surrogate (\\ud800 to \\udfff), which is not a character; remove it"
        )
    return row


def json_fault(error: ValueError | RecursionError) -> str:
    """Say what is wrong with a line, and at which character.

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


def read_json_value(name: str):
    try:
        text = "".join(LineReader(name, longest=0))
        value = json.loads(text)
        return refuse_surrogates(name, value) if "\\ud" in text.lower() else value
    except (ValueError, RecursionError) as error:
        remedy = "; if it holds one object per line, call it .jsonl" if "Extra data" in str(error) else ""
        raise BertJaxError(f"{name} is not JSON ({first_line(error)}){remedy}") from error


def rows_of_list(name: str, value) -> Iterator[tuple[str, Row]]:
    """Return the rows of a JSON list of objects, which may also be the value of the key "data"."""
    if isinstance(value, dict):
        value = value.get("data")
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BertJaxError(f"{name} is not a list of JSON objects; write one object for each row")
    return number_rows(name, value)


@contextmanager
def opened_parquet(name: str):
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BertJaxError(f"{name} needs pyarrow ({first_line(error)}); pip install pyarrow") from error

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
    """Return the name of a class, or None if it is hidden (-1), as in GLUE's test splits."""
    if isinstance(value, list):
        return [class_name(where, part, names) for part in value]
    if type(value) is not int:  # then the names do not belong to this column
        return value
    if value >= len(names):
        raise BertJaxError(
            f"{where} has class {value}, but the file's metadata names {len(names)} classes; fetch it again"
        )
    return names[value] if value >= 0 else None


def names_of_classes(file) -> dict[str, tuple[str, ...]]:
    """Return the names of classes by column, which the `datasets` library keeps in the metadata of a parquet file."""
    try:
        stated = json.loads((file.schema_arrow.metadata or {})[b"huggingface"])
        features = stated["info"]["features"].items()
    except (KeyError, ValueError, RecursionError, TypeError, AttributeError):  # of another library
        return {}
    names = {}
    for column, feature in features:
        while isinstance(feature, list) or (isinstance(feature, dict) and "feature" in feature):
            feature = (feature or [None])[0] if isinstance(feature, list) else feature["feature"]
        classes = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(classes, list) and all(isinstance(name, str) for name in classes):
            names[column] = tuple(classes)
    return names


def source_class_names(spec: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes, in the source's order, of the columns for which the source names classes."""
    name = expand_inputs([spec])[0]
    if name.startswith("tfds:"):
        from bert_jax.text.tensorflow_datasets import tfds_class_names as tfds_names

        return tfds_names(name)
    if file_extension(name) != ".parquet":
        return {}
    with opened_parquet(name) as file:
        return names_of_classes(file)


def count_rows(source: str) -> int | None:
    """Return the number of rows of a table, or of lines; None if the file would have to be read whole to know it, as
    JSON or what is compressed, or is no file.

    A line of a .csv file ends a row if no quote is open in it.
    """
    extension = file_extension(source)
    if not Path(source).is_file() or extension == ".json" or extension != Path(source).suffix.lower():
        return None
    if extension == ".parquet":
        with opened_parquet(source) as file:
            return file.metadata.num_rows
    rows, quotes = 0, 0
    with open(source, "rb") as lines:
        for line in lines:
            quotes += line.count(b'"') if extension == ".csv" else 0
            rows += quotes % 2 == 0 and (extension == ".txt" or not line.isspace())
    return rows - (rows > 0 and extension in (".csv", ".tsv"))
