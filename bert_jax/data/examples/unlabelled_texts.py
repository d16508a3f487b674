"""Read texts without labels: the lines of a file or of standard input, or a column of a table."""

from collections.abc import Iterator

from bert_jax.data.examples.columns import ExampleColumns, text_and_label
from bert_jax.data.examples.row_parsing import peeked
from bert_jax.text import tables
from bert_jax.text.input_files import file_extension
from bert_jax.text.line_reader import LineReader, read_lines


def read_unlabelled(source: str, column: str = "") -> Iterator[str]:
    is_table = holds_rows(source)
    if not is_table and not column:
        return read_lines(source)
    reader = LineReader(source)
    rows = (
        tables.read_table_rows(source, column.isdecimal())
        if is_table
        else tables.json_rows(reader.name, reader)
    )
    first, rows = peeked(rows)
    if first is None:
        return iter(())
    (name, *_), _ = text_and_label(*first, ExampleColumns(text=column), need_label=False, pairs=False)
    return (tables.get_text_cell(where, row, name) for where, row in rows)


def split_columns(source: str, column: str = "") -> tuple[str, list[str]]:
    """Return (the column that `read_unlabelled` reads, the other columns); ("", []) for a file of lines."""
    if not holds_rows(source):
        return "", []
    first, _ = peeked(tables.read_table_rows(source, column.isdecimal()))
    if first is None:
        return "", []
    (name, *_), _ = text_and_label(*first, ExampleColumns(text=column), need_label=False, pairs=False)
    return name, [other for other in first[1] if other != name]


def holds_rows(source: str) -> bool:
    kind = file_extension(source)
    return source.startswith("tfds:") or (kind in tables.TABLE_EXTENSIONS and kind != ".txt")
