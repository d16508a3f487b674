"""The columns of a table whose rows hold texts that belong together: which of them are texts, and in which order.

A column named like a query is the first text, one named like a passage the second, and negatives are the last; other
columns keep their order. No texts are the column of the score or label, ids, the column of the document that a row was
taken from, and columns that hold only numbers, unless the user names them. column_names.py lists the usual names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import ClassVar

from bert_jax.core.arguments import spell_setting
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.column_names import (
    GROUP_SCORES,
    GROUPS,
    NEGATIVES,
    NOT_TEXTS,
    PASSAGES,
    PASSAGES_OF_QUERIES,
    QUERIES,
    SCORES,
)
from bert_jax.data.examples.columns import ExampleColumns, LocatedRow, check_columns, find_usual_column
from bert_jax.data.examples.row_parsing import peek_readable_row
from bert_jax.text import tables
from bert_jax.text.tables import match_columns, normalize_column, table_location

FIRST = 1000  # the number of rows at the start of a table that decide what its columns hold
NUMBER = re.compile(r"[-+]?\d[\d.,]*")


@dataclass(frozen=True)
class GroupColumns:
    """The names of a table's columns, in upper or lower case. "" and () stand for the columns that are found without
    being named. Numbers ("0", "3") name the columns of a csv or tsv file without a header."""

    # columns of anchor, positive and negatives, as '"Asked (raw)","Answer"'; (): all columns that hold text, except
    # those that hold only numbers; usual names of queries and passages come first
    texts: tuple[str, ...] = ()
    score: str = ""  # column of the score, or of the label of a single text; "": found by its usual name
    # column of the document that a row belongs to; a document is never split between training and validation; "": found
    # by its usual name
    group: str = ""
    # skip and count bad rows, such as rows with an empty cell, instead of stopping with an error
    skip_bad: bool = False

    usual_groups: ClassVar[tuple[str, ...]] = GROUPS
    # The roles of the columns of texts. Columns of the first `repeating` roles may repeat few values.
    roles: ClassVar[tuple[str, ...]] = ("anchor", "positive", "negatives")
    repeating: ClassVar[int] = 0

    @property
    def named(self) -> list[str]:
        return [*self.texts, *(name for name in (self.score, self.group) if name)]

    @property
    def numbered(self) -> bool:
        return bool(self.named) and all(name.isdecimal() for name in self.named)

    @property
    def pair_columns(self) -> ExampleColumns:
        """The same columns for a table that has two texts with a label or score."""
        first, second = (*self.texts, "", "")[:2]
        return ExampleColumns(first, second, self.score, group=self.group, skip_bad=self.skip_bad)

    def resolve(self, some: Sequence[LocatedRow]) -> "GroupColumns":
        """Fill in the columns of a table with these first rows, which show the columns that hold text, and those that
        hold only numbers."""
        where, row = some[0]
        check_columns(where, row, self.named, {})
        named, score, document = (
            match_columns(where, row, names) for names in (self.texts, [self.score], [self.group])
        )
        known = score[0] or find_usual_column(where, row, GROUP_SCORES)
        texts = named or list_text_columns(some, {known, document[0]})
        if not texts:
            raise BertJaxError(
                f"{table_location(where)}: no column was found that holds text; name the columns of texts with "
                f"{texts_setting()}"
            )
        whole = document[0] or self.find_group(match_columns(where, row, self.usual_groups), texts, known)
        if not named:
            texts = order_texts([name for name in texts if name != whole])
        return replace(self, texts=tuple(texts), score=known, group=whole)

    def find_group(self, usual: Iterable[str], texts: Sequence[str], score: str) -> str:
        """Return the first column with a `usual` name of a group that is not one of the texts; "" if there is none."""

        def is_text(column: str) -> bool:
            others = [name for name in texts if name != column]
            return column in texts and (bool(self.texts) or not is_group(column, others, score))

        return next((column for column in usual if column and not is_text(column)), "")

    def default_document(self, texts: Sequence[str]) -> str:
        """The document of a row if no column names it."""
        return "\n".join(texts[1:2] or texts)


def list_text_columns(some: Sequence[LocatedRow], beside: Iterable[str]) -> list[str]:
    """Return the columns that hold texts, in their order, by a table's first rows; no text is `beside`."""
    known = {normalize_column(name) for name in beside if name}
    rows = [row for _, row in some]
    first = set(map(normalize_column, rows[0]))
    later = {normalize_column(name): name for row in rows for name in row}
    return [
        name
        for name in [*rows[0], *(name for key, name in later.items() if key not in first)]
        if normalize_column(name) not in known
        and not is_id(name)
        and holds_text(name, rows)
        and not holds_numbers(name, rows)
    ]


def is_group(column: str, others: Sequence[str], score: str) -> bool:
    """Whether a column with a usual name of a group holds groups and not a text, by the `others` that hold texts.

    A document beside a query is its text, unless another column is named like one. Without the column, a row must still
    have two texts, or one with a label."""
    names = set(map(normalize_column, others))
    has_query = not names.isdisjoint(QUERIES)
    if has_query and normalize_column(column) in PASSAGES and names.isdisjoint(PASSAGES_OF_QUERIES):
        return False
    is_labelled = bool(score) and not (has_query and normalize_column(score) in SCORES)
    return len(others) > (0 if is_labelled else 1)


def order_texts(columns: Sequence[str]) -> list[str]:
    """Put the query first, then its passage, and negatives last. Columns without a usual name stay in their order.

    >>> order_texts(["document", "query"]), order_texts(["why", "positive", "because"])
    (['query', 'document'], ['why', 'positive', 'because'])
    """
    query, passage = find_query_and_passage(columns)
    negatives = [column for column in columns if NEGATIVES.fullmatch(normalize_column(column))]
    others = [column for column in columns if column not in (*query, *passage, *negatives)]
    ahead = query or [column for column in others if normalize_column(column) not in PASSAGES][:1]
    return list(dict.fromkeys([*ahead, *passage, *others, *negatives]))


def find_query_and_passage(columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return ([the first column named like a query], [the first named like a passage]); [] stands for none."""
    queries = [column for column in columns if normalize_column(column) in QUERIES]
    like_passages = PASSAGES_OF_QUERIES if queries else PASSAGES
    return queries[:1], [column for column in columns if normalize_column(column) in like_passages][:1]


def reuse_training_columns(
    spec: str, columns: GroupColumns, training_columns: ExampleColumns
) -> GroupColumns:
    """If the user names no columns of texts, use those of training, provided that the table has all of them."""
    names = [name for name in (training_columns.text, training_columns.text_pair) if name]
    if columns.texts or not names:
        return columns
    some, _ = first_rows(spec, columns.numbered or training_columns.numbered)
    there = match_columns(*some[0], [*names, training_columns.label or names[0]]) if some else [""]
    if not all(there):
        return columns
    return replace(columns, texts=tuple(names), score=columns.score or training_columns.label)


def positive_column(spec: str, columns: GroupColumns) -> str:
    """Return the name of the second column of texts; "" if there is none."""
    some, _ = first_rows(spec, columns.numbered)
    return "".join(columns.resolve(some).texts[1:2]) if some else ""


def first_rows(spec: str, numbered: bool) -> tuple[list[LocatedRow], Iterator[LocatedRow]]:
    """Return (the readable ones of a table's first rows, an iterator over all rows)."""
    first, rows = peek_readable_row(tables.read_table_rows(spec, numbered, keep_broken=True))
    some = list(islice(rows, FIRST)) if first else []
    return [(where, row) for where, row in some if not isinstance(row, tables.BrokenRow)], chain(some, rows)


def describe_columns(spec: str, columns: GroupColumns, advice: str, most: int = 0) -> str:
    """Describe for the user which column of a table is used for what. `most` columns of texts are used; 0: all.

    `advice` says how to name other columns."""
    some, _ = first_rows(spec, columns.numbered)
    resolved, rows = columns.resolve(some), [row for _, row in some]
    used = resolved.texts[: most or None]
    roles = columns.roles if len(used) > 1 else ("text",)
    in_roles = zip(roles, (used[:1], used[1:2], used[2:]), strict=False)
    parts = [f"{role} {quote_names(names)}" for role, names in in_roles if names]
    if resolved.score:
        parts.append(f"{'score' if len(used) > 1 else 'label'} {quote_names([resolved.score])}")
    if resolved.group:
        parts.append(f"document {quote_names([resolved.group])}")
    words = ", ".join(parts)
    beside = {*used, resolved.score, resolved.group}
    unread = [name for name in rows[0] if name not in beside]
    numbers = [name for name in unread if not is_id(name) and holds_numbers(name, rows)]
    if numbers:
        words += f"; left out because they hold only numbers: {quote_names(numbers)}"
    if others := [name for name in unread if name not in numbers]:
        words += f"; not read: {quote_names(others)}"
    return f"{spec}: {words}{f'; name others with {advice}' if numbers else ''}"


def texts_setting() -> str:
    return spell_setting("--text and --text-pair", "--config.data.columns.texts")


def quote_names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name:.40}"' for name in names)


def is_id(name: str) -> bool:
    return bool(NOT_TEXTS.fullmatch(normalize_column(name)))


def is_empty_list(value) -> bool:
    return isinstance(value, list | tuple) and not value


def holds_numbers(name: str, rows: Sequence[Mapping]) -> bool:
    """Whether all non-empty cells of a column hold numbers."""
    cells = [cell for row in rows if (cell := row.get(name)) is not None and cell != ""]
    return bool(cells) and all(
        isinstance(cell, int | float) or (isinstance(cell, str) and NUMBER.fullmatch(cell.strip()))
        for cell in cells
    )


def holds_text(name: str, rows: Sequence[Mapping]) -> bool:
    """Whether the first cell of a column that is neither null nor an empty list holds a text or a list of texts."""
    cells = (row.get(name) for row in rows)
    first = next((cell for cell in cells if cell is not None and not is_empty_list(cell)), None)
    return all(isinstance(text, str) for text in (first if isinstance(first, list | tuple) else [first]))
