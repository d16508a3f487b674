"""The rows of a table as examples; those that are bad are refused, or skipped and counted."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeVar

from bert_jax.arguments import setting
from bert_jax.data.examples.columns import Columns, Located
from bert_jax.data.examples.example import Example
from bert_jax.errors import BertJaxError
from bert_jax.text.tables import BadRow, Broken, Row
from bert_jax.text.truncation import warn

T = TypeVar("T")
Reader = Callable[[str, Row], Example]  # of a row


def peeked(items: Iterable[T]) -> tuple[T | None, Iterator[T]]:
    """(the first or None, all of them)."""
    items = iter(items)
    for first in items:
        return first, chain([first], items)
    return None, items


def rows_begun(rows: Iterable[Located]) -> tuple[Located | None, Iterator[Located]]:
    """(the first row that can be read, or None where there is no row; all of them)"""
    rows, broken = iter(rows), list[Located]()
    for where, row in rows:
        if not isinstance(row, Broken):
            return (where, row), chain(broken, [(where, row)], rows)
        broken.append((where, row))
    for _, row in broken[:1]:
        assert isinstance(row, Broken)
        raise row.error
    return None, rows


def examples_in_rows(
    rows: Iterable[Located], read: Reader, columns: Columns, is_whole: bool
) -> Iterator[Example]:
    """An example of each row, as they come. Where the table `is_whole`, and is not being typed, an error counts all
    bad rows."""
    rows, first = iter(rows), None
    bad = total = 0

    def read_row(where: str, row: Row) -> Example:
        if isinstance(row, Broken):
            raise row.error
        return read(where, row)

    for total, (where, row) in enumerate(rows, 1):
        try:
            example = read_row(where, row)
        except BadRow as error:
            if not columns.skip_bad:
                raise refusal(error, total, rows if is_whole else None, read_row) from error
            first, bad = first or error, bad + 1
        else:
            yield example
    if first and bad == total:
        raise BadRow(f"{first}; all {total:,} rows are bad")
    if first:
        warn(f"skipped {bad:,} of {total:,} rows, the first: {first}")


def refusal(error: BadRow, total: int, others: Iterable[Located] | None, read: Reader) -> BadRow:
    """The error of row number `total`, with how many more rows are bad, and how they are skipped."""
    flag = setting("--skip-bad", "--config.data.columns.skip_bad=True")
    unknown = BadRow(f"{error}; {flag} skips such rows")
    if others is None:
        return unknown
    try:
        bad = [is_bad(read, *located) for located in others]
    except BertJaxError:  # further on there is worse, for which the next attempt is soon enough
        return unknown
    count, total = 1 + sum(bad), total + len(bad)
    return BadRow(f"{error}; bad rows: {count:,} of {total:,}, which {flag} skips")


def is_bad(read: Reader, where: str, row: Row) -> bool:
    try:
        read(where, row)
    except BadRow:
        return True
    return False
