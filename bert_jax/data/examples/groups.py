"""Read groups of texts, the training examples of an embedder, from the rows of tables.

A table has one of these sets of columns:

anchor, positive                     a text, and a text that a search for it should find
anchor, positive, negatives          also texts that it should not find
two texts, score                     how similar they are
anchor, positive, negatives, scores  a teacher's score of each text after the first
text, label                          texts with the same label should find one another
text                                 each text is its own positive; the two copies differ only by dropout

group_columns.py finds the columns.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.cells import (
    empty_cell_error,
    parse_list,
    parse_number_cell,
    read_label_cell,
    read_name_cell,
)
from bert_jax.data.examples.column_names import DOCUMENT_TEXTS, QUERIES, TITLES
from bert_jax.data.examples.columns import LocatedRow
from bert_jax.data.examples.example import E, Example, collect_examples
from bert_jax.data.examples.group_columns import (
    GroupColumns,
    first_rows,
    is_empty_list,
    list_text_columns,
    texts_setting,
)
from bert_jax.data.examples.row_parsing import parse_examples
from bert_jax.data.randomness import random_key
from bert_jax.text import tables
from bert_jax.text.tables import BadRowError, Row, match_columns, normalize_column, table_location, type_name

FEW = 10  # a column with less than one distinct value in this many rows looks like a label


@dataclass(frozen=True, slots=True)
class Group(Example):
    """A group of texts. `text` holds all of them, the anchor first."""

    scores: tuple[float, ...] = ()
    # Texts of groups that share a label are never negatives of one another; "": only equal texts are excluded.
    shared_label: str = ""
    listed: bool = False  # whether the texts after the first come from a list in one cell

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self.text)


def read_groups(spec: str, columns: GroupColumns, most: int = 0) -> list[Group]:
    """Read the groups of a table, at most `most` of them, drawn at random; 0: all of them.

    If a row has only one text, its positive is another text of its label, or the text itself if there are no labels."""
    groups = read_unpaired(spec, columns, most)
    if groups[0].shared_label:
        return pair_by_label(spec, groups)
    if len(groups[0].texts) == 1:
        groups = [join_groups(group, group) for group in groups]
    if all(len(set(group.texts)) == 1 for group in groups):
        check_single_text(spec, columns)
    return groups


def read_unpaired(spec: str, columns: GroupColumns, most: int = 0) -> list[Group]:
    """Do the same as `read_groups`, but leave rows of one text without a positive."""
    groups = collect_examples(spec, parse_groups(spec, columns, lambda group: group), most)
    check_shapes(groups)
    return groups


def read_text_column(spec: str, columns: GroupColumns, preferred: str = "") -> list[str]:
    """Read the texts of the column `preferred` if the table has it, else of one with a usual name of the text of a
    document, else of the first column that holds text and is not named like a title."""
    some, rows = first_rows(spec, columns.numbered)
    if not some:
        raise BertJaxError(f"{spec} holds no text")
    names = columns.texts or list_text_columns(some, [columns.resolve(some).score])
    wanted, *usual = match_columns(spec, dict.fromkeys(names), [preferred, *DOCUMENT_TEXTS])
    not_titles = (name for name in names if normalize_column(name) not in TITLES)
    column = next(filter(None, [wanted, *usual, *not_titles]), names[0])
    if column not in (wanted, *columns.texts):
        refuse_few_values(some, [column])
    examples = parse_examples(
        rows,
        lambda where, row: Example(tuple(read_cell_texts(where, row, column)), None, where),
        columns.skip_bad,
        is_whole=True,
    )
    return [text for example in examples for text in example.text]


def check_single_text(spec: str, columns: GroupColumns) -> None:
    """Refuse texts that are their own positives, unless the user named one column or the table has no other text."""
    some, _ = first_rows(spec, columns.numbered)
    texts = list_text_columns(some, [columns.resolve(some).score, columns.group])
    if len(set(columns.texts)) != 1 and len(texts) > 1:
        raise BertJaxError(
            f"{spec}: the texts of a row are equal, so each would be its own positive; name columns that differ, or "
            f"one column alone, with {texts_setting()}"
        )


def parse_groups(spec: str, columns: GroupColumns, make: Callable[[Group], E]) -> Iterator[E]:
    """Yield `make(group)` for the group of each row. Rows that raise BadRowError are skipped if `columns.skip_bad`."""
    some, rows = first_rows(spec, columns.numbered)
    if not some:
        return
    named, columns = columns.texts, columns.resolve(some)
    refuse_few_values(some, () if named else columns.texts[columns.repeating :])

    def parse_group(where: str, row: Row) -> Group:
        first, *others = columns.texts
        if others and isinstance(row.get(first), list | tuple):
            raise BadRowError(
                f'{where}: column "{first}" holds a list, and the {columns.roles[0]} is one text'
            )
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
        for column in columns.texts:
            if is_empty_list(tables.get_cell(where, row, column)):
                raise BadRowError(
                    f'{where}: column "{column}" is an empty list beside a score; leave the row out'
                )
        value = read_label_cell(where, row, columns.score, need_label=True)
        location = f'{where}: column "{columns.score}"'
        if len(texts) == 1:
            return replace(group, shared_label=str(value).strip())
        values = value if isinstance(value, list | tuple) else [value]
        return replace(group, scores=tuple(parse_number_cell(location, score) for score in values))

    yield from parse_examples(
        rows, lambda where, row: make(parse_group(where, row)), columns.skip_bad, is_whole=True
    )


def refuse_few_values(some: Sequence[LocatedRow], names: Sequence[str]) -> None:
    """Refuse columns that the user did not name and that look like labels, judged by the table's first rows. A query
    has as many rows as relevant passages."""
    for name in (name for name in names if normalize_column(name) not in QUERIES):
        count = len({str(row.get(name)) for _, row in some})
        if count * FEW < len(some):
            raise BertJaxError(
                f'{table_location(some[0][0])}: column "{name:.40}" repeats {pluralize(count, "value")} in '
                f"{pluralize(len(some), 'row')}, so it looks like a label, not a text; name the columns of texts with "
                f"{texts_setting()}"
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
        same_label, others = by_label[text.shared_label], earlier_others[text.shared_label, text.text]
        others.append(len(same_label) - len(others))
        same_label.append(text)
    if len(by_label) < 2:
        raise BertJaxError(
            f'{spec} has only the label "{texts[0].shared_label}"; give texts with at least two labels'
        )
    groups = []
    for n, text in enumerate(texts):
        same_label, others = by_label[text.shared_label], earlier_others[text.shared_label, text.text]
        if count := len(same_label) - len(others):
            drawn = int(random_key("positive", n)) % count  # among the other texts, in their order
            groups.append(join_groups(text, same_label[drawn + bisect_right(others, drawn)]))
    if not groups:
        raise BertJaxError(f"{spec}: no two different texts have the same label, so none has a positive")
    return groups


def join_groups(anchor: Group, positive: Group) -> Group:
    return replace(anchor, text=(*anchor.texts, *positive.texts))
