"""Rows of tables that people have: csv, tsv, JSON, JSON lines, parquet, and TensorFlow Datasets.

A row comes as (where it stands, {column: value}). Rows are counted as a spreadsheet or an editor does: from 1, the
header among them. Nothing is repaired here: what cannot be read as it stands is an error that names the row.
"""

import csv
import json
import lzma
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from bert_jax.errors import BertJaxError, first_line
from bert_jax.text.readers import LONGEST_DOCUMENT, OPENERS, expanded, opened

Row = dict[str, object]
ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")


def rows(spec: str, numbered: bool = False) -> Iterator[tuple[str, Row]]:
    """Of a file, a folder, a glob, or `tfds:NAME/CONFIG:SPLIT`.

    With `numbered`, csv and tsv files have no header, and their columns are "0", "1", ...
    """
    for name in expanded([spec]):
        yield from file_rows(name, numbered)


def file_rows(name: str, numbered: bool = False) -> Iterator[tuple[str, Row]]:
    if name.startswith("tfds:"):
        from bert_jax.text.tensorflow_datasets import rows as tfds_rows

        return counted(name, tfds_rows(name))
    match ending(name):
        case ".parquet":
            return parquet_rows(name)
        case ".jsonl" | ".ndjson":
            return json_rows(name, lines(name))
        case ".json":
            return listed_rows(name, json_of(name))
        case ".csv" | ".tsv" | ".txt" as kind:
            return separated_rows(name, lines(name), numbered, tabs=kind != ".csv")
    raise BertJaxError(f"{name} is no table known by its ending; known: {', '.join(ENDINGS)}")


def ending(name: str) -> str:
    """
    >>> ending("reviews.jsonl.gz")
    '.jsonl'
    """
    path = Path(name)
    return (Path(path.stem) if path.suffix in OPENERS else path).suffix


def counted(name: str, rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    return ((f"{name} row {number}", row) for number, row in enumerate(rows, 1))


def lines(name: str) -> Iterator[str]:
    """With their ends, which a quoted cell of a csv file may hold."""
    try:
        with open(name, "rb") as raw, opened(name, raw) as file:
            yield from decoded(file, f"{name} line", "convert the file")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise BertJaxError(f"{name} cannot be read ({first_line(error)}); fetch it again") from error


def decoded(lines: Iterable[bytes], where: str, remedy: str) -> Iterator[str]:
    """UTF-8, without the mark that may stand at its start."""
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BertJaxError(
                f"{where} {number} is not UTF-8 (its byte {error.start + 1}); {remedy}"
            ) from error


def separated_rows(
    name: str, lines: Iterable[str], numbered: bool = False, tabs: bool = False
) -> Iterator[tuple[str, Row]]:
    """Cells parted by tabs are taken as they are, each " too; those parted by commas or semicolons may be quoted."""
    lines = iter(lines)
    first = next(lines, "")
    tabs = tabs or "\t" in first  # as in the STS benchmark's .csv
    records = enumerate((tabbed if tabs else quoted)(name, chain([first], lines)), 1)
    header: list[str] = []
    for number, cells in records:
        if not cells:
            continue
        if not header:
            header = cells
            if len(set(header)) < len(header) and not numbered:
                raise BertJaxError(
                    f"{name} row {number} names a column twice; if it is no header, name columns by number: 0, 1"
                )
            numbers = [str(column) for column in range(len(header))]
            if not numbered or header == numbers:
                continue
        # Without a header and without quotes, what follows the columns that are asked for is no one's concern.
        if len(cells) != len(header) and not (numbered and tabs):
            raise BertJaxError(
                f"{name} row {number} has {len(cells)} columns, not {len(header)}; "
                + ("a tab in a text?" if tabs else "a text with commas stands in quotes")
            )
        yield (
            f"{name} row {number}",
            dict(zip(map(str, range(len(cells))) if numbered else header, cells, strict=True)),
        )


def tabbed(name: str, lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        line = line.rstrip("\r\n")
        yield line.split("\t") if line else []


def quoted(name: str, lines: Iterator[str]) -> Iterator[list[str]]:
    first = next(lines, "")
    delimiter = ";" if first.count(";") > first.count(",") else ","
    csv.field_size_limit(LONGEST_DOCUMENT)
    number = 1
    try:
        for cells in csv.reader(chain([first], lines), delimiter=delimiter, strict=True):
            yield cells
            number += 1
    except csv.Error as error:
        raise BertJaxError(
            f'{name} row {number} has quotes that do not match ({error}); a " in quotes is written ""'
        ) from error


def json_rows(name: str, lines: Iterable[str]) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BertJaxError(f"{name} row {number} is not JSON ({getattr(error, 'msg', error)})") from error
        if not isinstance(row, dict):
            raise BertJaxError(
                f'{name} row {number} is no JSON object such as {{"text": "...", "label": "..."}}'
            )
        yield f"{name} row {number}", row


def json_of(name: str):
    """The one JSON value that a file holds."""
    try:
        return json.loads("".join(lines(name)))
    except (ValueError, RecursionError) as error:
        remedy = "; with one object a line, call it .jsonl" if "Extra data" in str(error) else ""
        raise BertJaxError(f"{name} is not JSON ({first_line(error)}){remedy}") from error


def listed_rows(name: str, value) -> Iterator[tuple[str, Row]]:
    """Of a JSON list of objects, bare or under "data"."""
    if isinstance(value, dict):
        value = value.get("data")
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BertJaxError(f"{name} is no list of JSON objects; one object a row is wanted")
    return counted(name, value)


def parquet_rows(name: str) -> Iterator[tuple[str, Row]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(name)
        names = named_by_datasets(file)
        batches = (batch.to_pylist() for batch in file.iter_batches(batch_size=1024))
        for where, row in counted(name, chain.from_iterable(batches)):
            for column in names.keys() & row.keys():
                row[column] = class_name(row[column], names[column])
            yield where, row
    except (pyarrow.ArrowException, OSError) as error:
        raise BertJaxError(
            f"{name} cannot be read as parquet ({first_line(error)}); fetch it again"
        ) from error


def class_name(value, names: tuple[str, ...]):
    """None where the class is hidden: -1, as in GLUE's test splits."""
    if isinstance(value, list):
        return [class_name(one, names) for one in value]
    return names[value] if value is not None and value >= 0 else None


def named_by_datasets(file) -> dict[str, tuple[str, ...]]:
    """The names of class numbers, which the `datasets` library leaves in the metadata of a parquet file."""
    try:
        features = json.loads((file.schema_arrow.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    found = {}
    for column, feature in features.items():
        while isinstance(feature, list) or "feature" in feature:
            feature = feature[0] if isinstance(feature, list) else feature["feature"]
        if isinstance(feature.get("names"), list):
            found[column] = tuple(feature["names"])
    return found


def class_names(spec: str) -> dict[str, tuple[str, ...]]:
    """Of the columns that hold classes, the names in the order of their source, where it has one."""
    name = expanded([spec])[0]
    if name.startswith("tfds:"):
        from bert_jax.text.tensorflow_datasets import class_names as tfds_names

        return tfds_names(name)
    if ending(name) != ".parquet":
        return {}
    import pyarrow
    from pyarrow import parquet

    try:
        return named_by_datasets(parquet.ParquetFile(name))
    except (pyarrow.ArrowException, OSError) as error:
        raise BertJaxError(
            f"{name} cannot be read as parquet ({first_line(error)}); fetch it again"
        ) from error
