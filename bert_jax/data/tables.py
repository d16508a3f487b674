"""Rows of tables that people have: csv, tsv, JSON, JSON lines, parquet, and TensorFlow Datasets.

A row comes as (where it stands, {column: value}). Rows are counted as a spreadsheet or an editor does: from 1, with the
header. Nothing is repaired here: what cannot be read as it stands is an error that names the row.
"""

import csv
import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_jax.errors import BertJaxError
from bert_jax.text.readers import LONGEST_DOCUMENT, OPENERS, expanded, first_line, opened, zstd_errors

Row = dict[str, object]
ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")


def rows(spec: str, numbered: bool = False) -> Iterator[tuple[str, Row]]:
    """Of a file, a glob, or `tfds:NAME/CONFIG:SPLIT`; with `numbered`, csv and tsv files have no header."""
    for name in expanded([spec]):
        yield from file_rows(name, numbered)


def file_rows(name: str, numbered: bool) -> Iterator[tuple[str, Row]]:
    if name.startswith("tfds:"):
        from bert_jax.text.tensorflow_datasets import rows as tfds_rows

        return ((f"{name} row {n}", row) for n, row in enumerate(tfds_rows(name), 1))
    match ending(name):
        case ".parquet":
            return parquet_rows(name)
        case ".jsonl" | ".ndjson":
            return json_rows(name, lines(name))
        case ".json":
            return listed_rows(name, document(name))
        case ".csv" | ".tsv" | ".txt" as kind:
            return separated_rows(name, lines(name), numbered, tabs=kind != ".csv")
    raise BertJaxError(f"{name} is no table known by its ending; known: {', '.join(ENDINGS)}")


def ending(name: str) -> str:
    """
    >>> ending("reviews.jsonl.gz")
    '.jsonl'
    """
    path = Path(name)
    return Path(path.stem).suffix if path.suffix in OPENERS else path.suffix


def lines(name: str) -> Iterator[str]:
    """With their ends, for a quoted cell of a csv file may hold them."""
    try:
        with open(name, "rb") as raw, opened(name, raw) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise BertJaxError(
                        f"{name} line {number} is not UTF-8 (byte {error.start + 1} of the line); convert the file"
                    ) from error
    except (OSError, EOFError, lzma.LZMAError, *zstd_errors(name)) as error:
        raise BertJaxError(f"{name} cannot be read ({first_line(error)}); fetch it again") from error


def separated_rows(
    name: str, lines: Iterable[str], numbered: bool = False, tabs: bool = False
) -> Iterator[tuple[str, Row]]:
    """Cells parted by tabs are taken as they are; those parted by commas or semicolons may be quoted."""
    header: list[str] = []
    for where, cells in split_lines(name, lines, tabs):
        if not header:
            header = cells
            if numbered:
                header = [str(column) for column in range(len(cells))]
            else:
                continue
        if len(cells) != len(header) and not (numbered and len(cells) > len(header)):
            raise BertJaxError(f"{where} has {len(cells)} columns, not {len(header)}")
        yield where, dict(zip(header, cells, strict=False))


def split_lines(name: str, lines: Iterable[str], tabs: bool) -> Iterator[tuple[str, list[str]]]:
    lines = iter(lines)
    first = next(lines, "")
    lines = (line for part in ([first], lines) for line in part)
    if tabs or "\t" in first:
        for number, line in enumerate(lines, 1):
            if line := line.rstrip("\r\n"):
                yield f"{name} row {number}", line.split("\t")
        return
    csv.field_size_limit(LONGEST_DOCUMENT)
    delimiter = ";" if first.count(";") > first.count(",") else ","
    number = 0
    try:
        for number, cells in enumerate(csv.reader(lines, delimiter=delimiter, strict=True), 1):
            if cells:
                yield f"{name} row {number}", cells
    except csv.Error as error:
        raise BertJaxError(f"{name} row {number + 1}: quotes do not match ({error})") from error


def json_rows(name: str, lines: Iterable[str]) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BertJaxError(
                f"{name} row {number} is not JSON ({error}); one object a line is wanted"
            ) from error
        if not isinstance(row, dict):
            raise BertJaxError(f"{name} row {number} is no JSON object; one a line is wanted")
        yield f"{name} row {number}", row


def document(name: str):
    """The one JSON value of a file."""
    try:
        return json.loads("".join(lines(name)))
    except (ValueError, RecursionError) as error:
        raise BertJaxError(
            f"{name} is not one JSON value ({error}); call it .jsonl if it has one a line"
        ) from error


def listed_rows(name: str, value) -> Iterator[tuple[str, Row]]:
    """Of a JSON list of objects, bare or under "data"."""
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BertJaxError(f"{name} is no list of JSON objects")
    return ((f"{name} row {number}", row) for number, row in enumerate(value, 1))


def parquet_rows(name: str) -> Iterator[tuple[str, Row]]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        for batch in parquet.ParquetFile(name).iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield f"{name} row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise BertJaxError(
            f"{name} cannot be read as parquet ({first_line(error)}); fetch it again"
        ) from error
