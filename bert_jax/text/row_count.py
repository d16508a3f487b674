"""The number of rows in a file, to say how much of it is left."""

from pathlib import Path

from bert_jax.text import tables
from bert_jax.text.input_files import file_extension


def count_rows(source: str) -> int | None:
    """Return the number of rows of a table, or of lines; None if the file would have to be read whole to know it, as
    JSON or what is compressed, or is no file.

    A line of a .csv file ends a row if no quote is open in it.
    """
    kind = file_extension(source)
    if not Path(source).is_file() or kind == ".json" or kind != Path(source).suffix.lower():
        return None
    if kind == ".parquet":
        with tables.opened_parquet(source) as file:
            return file.metadata.num_rows
    rows, quotes = 0, 0
    with open(source, "rb") as lines:
        for line in lines:
            quotes += line.count(b'"') if kind == ".csv" else 0
            rows += quotes % 2 == 0 and (kind == ".txt" or not line.isspace())
    return rows - (rows > 0 and kind in (".csv", ".tsv"))
