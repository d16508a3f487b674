"""Turn the rows of a table into examples. Bad rows are an error, or are skipped and counted."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeVar

from bert_jax.core.arguments import spell_setting
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import LocatedRow
from bert_jax.data.examples.example import E
from bert_jax.text.tables import BadRowError, BrokenRow, Row

T = TypeVar("T")
RowParser = Callable[[str, Row], E]  # (where the row is, the row) -> example


def peek(items: Iterable[T]) -> tuple[T | None, Iterator[T]]:
    """Return (the first item or None, an iterator over all items)."""
    items = iter(items)
    for first in items:
        return first, chain([first], items)
    return None, items


def peek_readable_row(rows: Iterable[LocatedRow]) -> tuple[LocatedRow | None, Iterator[LocatedRow]]:
    """Return (the first readable row, or None if there is no row; an iterator over all rows)."""
    rows, broken = iter(rows), list[LocatedRow]()
    for where, row in rows:
        if not isinstance(row, BrokenRow):
            return (where, row), chain(broken, [(where, row)], rows)
        broken.append((where, row))
    for _, row in broken[:1]:
        assert isinstance(row, BrokenRow)
        raise row.error
    return None, rows


def parse_examples(
    rows: Iterable[LocatedRow], read: RowParser[E], skip_bad: bool, is_whole: bool
) -> Iterator[E]:
    """Yield the example of each row, one at a time.

    `is_whole`: the table is complete, not being typed, so that an error can count the bad rows in all of it."""
    rows, first = iter(rows), None
    bad = total = 0

    def read_row(where: str, row: Row) -> E:
        if isinstance(row, BrokenRow):
            raise row.error
        return read(where, row)

    for total, (where, row) in enumerate(rows, 1):
        try:
            example = read_row(where, row)
        except BadRowError as error:
            if not skip_bad:
                raise refusal(error, total, rows if is_whole else None, read_row) from error
            first, bad = first or error, bad + 1
        else:
            yield example
    if first and bad == total:
        raise BadRowError(f"{first}; all {total:,} rows are bad")
    if first:
        warn_caller(f"skipped {bad:,} of {total:,} rows, the first: {first}")


def refusal(
    error: BadRowError, total: int, others: Iterable[LocatedRow] | None, read: RowParser
) -> BadRowError:
    """Extend the error of row number `total` with the number of bad rows and with the setting that skips them."""
    flag = spell_setting("--skip-bad", "--config.data.columns.skip_bad=True")
    unknown = BadRowError(f"{error}; {flag} skips such rows")
    if others is None:
        return unknown
    bad = 1
    try:
        for where, row in others:
            total += 1
            try:
                read(where, row)
            except BadRowError:
                bad += 1
    except BertJaxError:  # a later row has a worse error; the user's next attempt will show it
        return unknown
    return BadRowError(f"{error}; bad rows: {bad:,} of {total:,}, which {flag} skips")
