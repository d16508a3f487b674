"""Write rows as the lines of a CSV file."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_jax.core.caller_warning import warn_caller


def csv_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each row, the first with the header above it; the columns are those of the first row.

    >>> print("\\n".join(csv_lines([{"text": "well, well", "score": 0.5}, {"text": "no"}])))
    text,score
    "well, well",0.5
    no,
    """
    header: list[str] = []
    is_told = False
    for row in rows:
        above = "" if header else f"{csv_line(row)}\n"
        header = header or list(row)
        if not is_told and (further := [name for name in row if name not in header]):
            warn_caller(
                f'column "{further[0]}" is left out of the table, because the first row does not have it'
            )
            is_told = True
        yield above + csv_line(cell_of(row.get(name)) for name in header)


def csv_line(cells: Iterable) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().removesuffix("\r\n")


def cell_of(value):
    """Return a cell's value: a list of words joined by spaces, other lists, dicts and booleans as JSON."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return " ".join(value)
    is_plain = not isinstance(value, list | dict | bool)
    return value if is_plain else json.dumps(value, ensure_ascii=False, default=str)
