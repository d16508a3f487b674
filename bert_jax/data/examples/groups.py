"""Read groups of texts, the training examples of an embedder, from the rows of tables.

A table has one of these sets of columns:

anchor, positive                     a text, and a text that a search for it should find
anchor, positive, negatives          also texts that it should not find
two texts, score                     how similar they are
anchor, positive, negatives, scores  a teacher's score of each text after the first
text, label                          texts with the same label should find one another
text                                 each text is its own positive; the two copies differ only by dropout

Columns are used in their order, whatever their names. Exceptions are the column of the score or label, and columns that
hold only numbers, which are left out unless the user names them.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import ClassVar

from bert_jax.core.arguments import spell_setting
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.cells import (
    empty_cell_error,
    parse_list,
    parse_number_cell,
    read_label_cell,
    read_name_cell,
)
from bert_jax.data.examples.columns import ExampleColumns, LocatedRow, check_columns, find_usual_column
from bert_jax.data.examples.example import Example, collect_examples
from bert_jax.data.examples.row_parsing import parse_examples, peek_readable_row
from bert_jax.data.randomness import random_key
from bert_jax.text import tables
from bert_jax.text.tables import BadRowError, Row, match_columns, normalize_column, table_place, type_name

SCORES = ("score", "scores", "label", "labels", "similarity_score")
IDS = re.compile(r"(.*[ _-])?(id|idx|uuid|split)")  # names of columns without text to learn from
FIRST = 1000  # the number of rows at the start of a table that decide what its columns hold
FEW = 10  # a column with less than one distinct value in this many rows looks like a label
NUMBER = re.compile(r"[-+]?\d[\d.,]*")


@dataclass(frozen=True)
class GroupColumns:
    """The names of a table's columns, in upper or lower case. "" and () stand for the columns that are found without
    being named. Numbers ("0", "3") name the columns of a csv or tsv file without a header."""

    # columns of anchor, positive and negatives, as '"Asked (raw)","Answer"'; (): all columns that hold text, except
    # those that hold only numbers
    texts: tuple[str, ...] = ()
    score: str = ""  # column of the score, or of the label of a single text; "": found by its usual name
    # column of the document that a row belongs to; a document is never split between training and validation; "": found
    # by its usual name
    group: str = ""
    # skip and count bad rows, such as rows with an empty cell, instead of stopping with an error
    skip_bad: bool = False

    documents: ClassVar[tuple[str, ...]] = ("document", "title")  # usual names of the column of the document
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

    def resolve(self, where: str, row: Mapping, rows: Sequence[Mapping] = ()) -> "GroupColumns":
        """Fill in the columns of a table with this first row. Its first `rows` show which columns hold text, and which
        hold only numbers."""
        check_columns(where, row, self.named, {})
        texts, score, document = (
            match_columns(where, row, names) for names in (self.texts, [self.score], [self.group])
        )
        known = score[0] or find_usual_column(where, row, SCORES)
        whole = document[0] or find_usual_column(where, row, self.documents)
        beside = {normalize_column(name) for name in (known, whole) if name}
        if not texts:
            rows, first = rows or [row], set(map(normalize_column, row))
            later = {normalize_column(name): name for other in rows for name in other}
            texts = [
                name
                for name in [*row, *(name for key, name in later.items() if key not in first)]
                if normalize_column(name) not in beside
                and not is_id(name)
                and holds_text(first_filled(name, rows))
            ]
            texts = [name for name in texts if not holds_numbers(name, rows)]
        if not texts:
            raise BertJaxError(
                f"{table_place(where)}: no column was found that holds text; name the columns of texts with "
                f"{texts_setting()}"
            )
        return replace(self, texts=tuple(texts), score=known, group=whole)

    def default_document(self, texts: Sequence[str]) -> str:
        """The document of a row if no column names it."""
        return "\n".join(texts[1:2] or texts)


@dataclass(frozen=True, slots=True)
class Group(Example):
    """A group of texts. `text` holds all of them, the anchor first."""

    scores: tuple[float, ...] = ()
    # Texts of groups with the same `alike` are never negatives of one another; "": only equal texts are excluded.
    alike: str = ""
    listed: bool = False  # whether the texts after the first come from a list in one cell

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self.text)


def read_groups(spec: str, columns: GroupColumns, most: int = 0) -> list[Group]:
    """Read the groups of a table, at most `most` of them, drawn at random; 0: all of them.

    If a row has only one text, its positive is another text of its label, or the text itself if there are no labels."""
    groups = read_unpaired(spec, columns, most)
    if len(groups[0].texts) > 1:
        return groups
    return pair_by_label(spec, groups) if groups[0].alike else [join_groups(group, group) for group in groups]


def read_unpaired(spec: str, columns: GroupColumns, most: int = 0) -> list[Group]:
    """Do the same as `read_groups`, but leave rows of one text without a positive."""
    rows = parse_groups(tables.read_table_rows(spec, columns.numbered, keep_broken=True), columns)
    groups = [group for group in collect_examples(spec, rows, most) if isinstance(group, Group)]
    check_shapes(groups)
    return groups


def read_text_column(spec: str, columns: GroupColumns, preferred: str = "") -> list[str]:
    """Read the texts of the column `preferred` if the table has it, else of the first column that holds text."""
    some, rows = first_rows(tables.read_table_rows(spec, columns.numbered, keep_broken=True))
    if not some:
        raise BertJaxError(f"{spec} holds no text")
    names = resolve_columns(some, columns).texts
    column = preferred if preferred in names else names[0]
    if column not in (preferred, *columns.texts):
        refuse_few_values(some, [column])
    examples = parse_examples(
        rows,
        lambda where, row: Example(tuple(read_cell_texts(where, row, column)), None, where),
        ExampleColumns(skip_bad=columns.skip_bad),
        is_whole=True,
    )
    return [text for example in examples for text in example.text]


def reuse_training_columns(
    spec: str, columns: GroupColumns, training_columns: ExampleColumns
) -> GroupColumns:
    """If the user names no columns of texts, use those named `before`, provided that the table has all of them."""
    names = [name for name in (training_columns.text, training_columns.text_pair) if name]
    if columns.texts or not names:
        return columns
    some, _ = first_rows(
        tables.read_table_rows(spec, columns.numbered or training_columns.numbered, keep_broken=True)
    )
    there = match_columns(*some[0], [*names, training_columns.label or names[0]]) if some else [""]
    if not all(there):
        return columns
    return replace(columns, texts=tuple(names), score=columns.score or training_columns.label)


def positive_column(spec: str, columns: GroupColumns) -> str:
    """Return the name of the second column of texts; "" if there is none."""
    some, _ = first_rows(tables.read_table_rows(spec, columns.numbered, keep_broken=True))
    return "".join(resolve_columns(some, columns).texts[1:2]) if some else ""


def first_rows(rows: Iterable[LocatedRow]) -> tuple[list[LocatedRow], Iterator[LocatedRow]]:
    """Return (the readable ones of the first rows, an iterator over all rows)."""
    first, rows = peek_readable_row(rows)
    some = list(islice(rows, FIRST)) if first else []
    return [(where, row) for where, row in some if not isinstance(row, tables.BrokenRow)], chain(some, rows)


def resolve_columns(some: Sequence[LocatedRow], columns: GroupColumns) -> GroupColumns:
    """Fill in the columns of a table with these first rows."""
    return columns.resolve(*some[0], [row for _, row in some])


def describe_columns(spec: str, columns: GroupColumns, advice: str, most: int = 0) -> str:
    """Describe for the user which column of a table is used for what. `most` columns of texts are used; 0: all.

    `advice` says how to name other columns."""
    some, _ = first_rows(tables.read_table_rows(spec, columns.numbered, keep_broken=True))
    resolved, rows = resolve_columns(some, columns), [row for _, row in some]
    used = resolved.texts[: most or None]
    roles = columns.roles if len(used) > 1 else ("text",)
    parts = [
        f"{role} {quote_names(names)}"
        for n, role in enumerate(roles)
        if (names := used[n:] if n == 2 else used[n : n + 1])
    ]
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
    return bool(IDS.fullmatch(normalize_column(name)))


def first_filled(name: str, rows: Sequence[Mapping]):
    """Return the first cell of a column that is neither null nor an empty list; None if there is none."""
    cells = (row.get(name) for row in rows)
    return next((cell for cell in cells if cell is not None and not is_empty_list(cell)), None)


def is_empty_list(value) -> bool:
    return isinstance(value, list | tuple) and not value


def holds_numbers(name: str, rows: Sequence[Mapping]) -> bool:
    """Whether all non-empty cells of a column hold numbers."""
    cells = [cell for row in rows if (cell := row.get(name)) is not None and cell != ""]
    return bool(cells) and all(
        isinstance(cell, int | float) or (isinstance(cell, str) and NUMBER.fullmatch(cell.strip()))
        for cell in cells
    )


def parse_groups(
    rows: Iterable[LocatedRow], columns: GroupColumns, made: Callable[[Group], Example] = lambda group: group
) -> Iterator[Example]:
    """Yield the group of each row, or `made(group)`. Rows that raise BadRowError are skipped if `columns.skip_bad`."""
    some, rows = first_rows(rows)
    if not some:
        return
    named, columns = columns.texts, resolve_columns(some, columns)
    refuse_few_values(some, () if named else columns.texts[columns.repeating :])

    def parse_example(where: str, row: Row) -> Example:
        return made(parse_group(where, row))

    def parse_group(where: str, row: Row) -> Group:
        texts = tuple(text for column in columns.texts for text in read_cell_texts(where, row, column))
        if texts[1:2] and texts[1] in texts[2:]:
            raise BadRowError(f"{where}: the positive is also one of the negatives; remove it from them")
        document = read_name_cell(where, row, columns.group) if columns.group else ""
        group = Group(
            texts, None, where,
            document=document or columns.default_document(texts),
            listed=len(columns.texts) == 2 and isinstance(row.get(columns.texts[1]), list | tuple),
        )  # fmt: skip
        if not columns.score:
            return group
        if empty := [
            column for column in columns.texts if is_empty_list(tables.get_cell(where, row, column))
        ]:
            raise BadRowError(
                f'{where}: column "{empty[0]}" is an empty list beside a score; leave the row out'
            )
        value = read_label_cell(where, row, columns.score, need_label=True)
        place = f'{where}: column "{columns.score}"'
        if len(texts) == 1:
            return replace(group, alike=str(value).strip())
        values = value if isinstance(value, list | tuple) else [value]
        return replace(group, scores=tuple(parse_number_cell(place, score) for score in values))

    skipping = ExampleColumns(skip_bad=columns.skip_bad)
    yield from parse_examples(rows, parse_example, skipping, is_whole=True)


def refuse_few_values(some: Sequence[LocatedRow], names: Sequence[str]) -> None:
    """Refuse columns that the user did not name and that look like labels, judged by the table's first rows."""
    for name in names:
        count = len({str(row.get(name)) for _, row in some})
        if count * FEW < len(some):
            raise BertJaxError(
                f'{table_place(some[0][0])}: column "{name:.40}" repeats {pluralize(count, "value")} in '
                f"{pluralize(len(some), 'row')}, so it looks like a label, not a text; name the columns of texts with "
                f"{texts_setting()}"
            )


def holds_text(value) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(text, str) for text in value)
    )


def read_cell_texts(where: str, row: Mapping, column: str) -> Sequence[str]:
    """Return the texts of a cell, which holds a text or a list of texts."""
    value = tables.get_cell(where, row, column)
    texts = [value or ""] if value is None or isinstance(value, str) else parse_list(where, value)
    for text in texts:
        if not isinstance(text, str):
            raise BadRowError(
                f'{where}: column "{column}" holds {type_name(text)}, not text; name another column'
            )
        if not text.strip():
            raise empty_cell_error(where, column)
    return texts


def check_shapes(groups: Sequence[Group]) -> None:
    """Refuse groups with different numbers of texts or scores: they must fit in one batch."""
    first = groups[0]
    for group in groups:
        for name in ("texts", "scores"):
            counts = len(getattr(group, name)), len(getattr(first, name))
            if counts[0] != counts[1]:
                raise BertJaxError(
                    f"{group.where} has {counts[0]} {name} and {first.where} has {counts[1]}; give every row the same "
                    "number"
                )


def pair_by_label(spec: str, texts: Sequence[Group]) -> list[Group]:
    """Pair each text with a different text of its label, drawn at random; texts without one are left out."""
    by_label: dict[str, list[Group]] = defaultdict(list)
    # (label, text) -> for each occurrence of the text in the list of its label, the number of other texts before it.
    earlier_others: dict[tuple[str, object], list[int]] = defaultdict(list)
    for text in texts:
        same_label, others = by_label[text.alike], earlier_others[text.alike, text.text]
        others.append(len(same_label) - len(others))
        same_label.append(text)
    if len(by_label) < 2:
        raise BertJaxError(
            f'{spec} has only the label "{texts[0].alike}"; give texts with at least two labels'
        )
    groups = []
    for n, text in enumerate(texts):
        same_label, others = by_label[text.alike], earlier_others[text.alike, text.text]
        if count := len(same_label) - len(others):
            drawn = int(random_key("positive", n)) % count  # among the other texts, in their order
            groups.append(join_groups(text, same_label[drawn + bisect_right(others, drawn)]))
    if not groups:
        raise BertJaxError(f"{spec}: no two different texts have the same label, so none has a positive")
    return groups


def join_groups(anchor: Group, positive: Group) -> Group:
    return replace(anchor, text=(*anchor.texts, *positive.texts))
