"""Read texts without labels: the lines of a file or of standard input, or a column of a table."""

from collections.abc import Iterator

from bert_jax.data.examples.columns import ExampleColumns, LocatedRow, text_and_label
from bert_jax.data.examples.row_parsing import peek
from bert_jax.text import tables
from bert_jax.text.input_files import file_extension
from bert_jax.text.line_reader import LineReader, read_lines


def read_unlabelled(source: str, column: str = "") -> Iterator[str]:
    if not column and not holds_rows(source):
        return read_lines(source)
    name, _, rows = find_column(source, column)
    return (tables.get_text_cell(where, row, name) for where, row in rows)


def split_columns(source: str, column: str = "") -> tuple[str, list[str]]:
    """Return (the column that `read_unlabelled` reads, the other columns); ("", []) for a file of lines."""
    if not holds_rows(source):
        return "", []
    name, first, _ = find_column(source, column)
    return name, [other for other in first if other != name]


def find_column(source: str, column: str) -> tuple[str, tables.Row, Iterator[LocatedRow]]:
    """Return (the column to read, the first row, an iterator over all rows); a file of lines has JSON objects."""
    if holds_rows(source):
        rows = tables.read_table_rows(source, column.isdecimal())
    else:
        reader = LineReader(source)
        rows = tables.json_rows(reader.name, reader)
    first, rows = peek(rows)
    if first is None:
        return "", {}, rows
    (name, *_), _ = text_and_label(*first, ExampleColumns(text=column), need_label=False, pairs=False)
    return name, first[1], rows


def holds_rows(source: str) -> bool:
    extension = file_extension(source)
    return source.startswith("tfds:") or (extension in tables.TABLE_EXTENSIONS and extension != ".txt")
