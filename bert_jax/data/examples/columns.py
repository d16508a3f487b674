"""Find the columns of a table: those that the user names, or else those with a usual name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bert_jax.core.arguments import spell_setting
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.data.examples import glue
from bert_jax.data.examples.column_names import (
    ANSWERS,
    CONTEXT,
    PAIRS,
    QUESTION,
    SECOND_TEXTS,
    TAGS,
    TEXT_LABELS,
    TEXTS,
    WORDS,
)
from bert_jax.text import tables
from bert_jax.text.tables import from_row_on, match_columns, no_columns, normalize_column, table_location

NAMES = ("text", "text_pair", "label", "id", "group")  # the fields of ExampleColumns that name a column
SEPARATOR = ","

LocatedRow = tuple[str, tables.Row]  # where the row is, and the row


@dataclass(frozen=True)
class ExampleColumns:
    """How to read a table: the names of its columns, in upper or lower case. CoNLL and SQuAD files need none of them.

    "" stands for the column with a usual name, if the table has one. Numbers ("0", "3") name the columns of a csv or
    tsv file without a header.
    """

    text: str = ""  # column of the text, the words or the question; "": found by its usual name
    text_pair: str = ""  # column of the second text or the passage; "": found by its usual name
    label: str = ""  # column of the label, the tags or the answers; "": found by its usual name
    id: str = ""  # column of the example's id, which predictions and reports show; "": none
    # column of the document that a row belongs to; a document is never split between training and validation; "": none
    group: str = ""
    # separator of several labels in one cell; "": a comma, or that of the training data
    label_separator: str = ""
    # skip and count bad rows, such as rows with an empty cell, instead of stopping with an error
    skip_bad: bool = False

    @property
    def named(self) -> list[str]:
        return [name for name in (getattr(self, key) for key in NAMES) if name]

    @property
    def numbered(self) -> bool:
        return bool(self.named) and all(name.isdecimal() for name in self.named)

    def resolve(self, where: str, row: Mapping) -> "ExampleColumns":
        """The columns of a table with this first row."""
        return self


AUTODETECT = ExampleColumns()


@dataclass(frozen=True)
class ColumnsFromTraining(ExampleColumns):
    """Columns that default to those of a model's training data (`training_columns`), if the table has them."""

    training_columns: ExampleColumns = AUTODETECT

    @property
    def numbered(self) -> bool:
        return super().numbered if self.named else self.training_columns.numbered

    def resolve(self, where: str, row: Mapping) -> ExampleColumns:
        # If the user names only the text, read no second text.
        before = replace(self.training_columns, text_pair="") if self.text else self.training_columns
        names = {key: getattr(before, key) for key in NAMES}
        there = {key: name and match_columns(where, row, [name])[0] for key, name in names.items()}
        filled = {key: getattr(self, key) or there[key] for key in NAMES}
        separator = self.label_separator or before.label_separator
        return ExampleColumns(**filled, label_separator=separator, skip_bad=self.skip_bad)


def find_usual_column(where: str, row: Mapping, names: Iterable[str]) -> str:
    """Return the first of `names` that the row has; "" if it has none of them."""
    return next(filter(None, match_columns(where, row, names)), "")


def check_columns(
    where: str, row: Mapping, named: Iterable[str], evident: Mapping[str, tuple[str, str]]
) -> None:
    """Refuse a table that lacks columns, with all of them in one error.

    `named` are the columns that the user names, `evident` those to be found by their usual names: {field of
    ExampleColumns: (what it holds, the column that was found or "")}."""
    named = list(named)
    missing = [
        name for name, column in zip(named, match_columns(where, row, named), strict=True) if not column
    ]
    unknown = {field: what for field, (what, column) in evident.items() if not column}
    complaint = table_location(where)
    if missing:
        complaint += f" has {no_columns(row, missing)}"
    if unknown:
        question = f"which column holds the {'? and which the '.join(unknown.values())}?"
        listing = suggest_name("", [name[:40] for name in row], "its columns")
        listing = "" if listing in complaint else f" {listing};"
        complaint += (
            f"{';' if missing else ':'} {question}{listing} name "
            f"{'it' if len(unknown) == 1 else 'them'} with {setting_of(unknown)}, by number (0, 1, ...) if the file "
            "has no header"
        )
    if missing or unknown:
        raise BertJaxError(complaint)


def setting_of(fields: Iterable[str]) -> str:
    """Return the flags or config keys that name the columns of these fields.

    >>> setting_of(["text", "label"])
    '--text and --label'
    """
    fields = list(fields)
    flags = [f"--{name.replace('_', '-')}" for name in fields]
    keys = [f"--config.data.columns.{name}" for name in fields]
    return spell_setting(" and ".join(flags), " and ".join(keys))


def text_and_label(
    where: str, row: Mapping, columns: ExampleColumns, need_label: bool, pairs: bool = True
) -> tuple[tuple[str, ...], str]:
    """Return (columns of the texts, column of the label)."""
    refuse_header(where, row, columns)
    if columns.text_pair and not pairs:
        raise BertJaxError(f'this model reads one text per row; leave out --text-pair "{columns.text_pair}"')
    second = (columns.text_pair,) if columns.text_pair else ()
    texts = (columns.text, *second) if columns.text else find_text_columns(where, row, second, pairs)
    label = columns.label or find_usual_column(where, row, TEXT_LABELS)
    named = [name for name in columns.named if need_label or name != columns.label]
    check_columns(
        where, row, named, {"text": ("text", texts[0])} | ({"label": ("label", label)} if need_label else {})
    )
    if pairs and not columns.text_pair:
        warn_of_second_text(where, row, texts, [*named, label])
    return tuple(match_columns(where, row, texts)), label and match_columns(where, row, [label])[0]


def words_and_tags(where: str, row: Mapping, columns: ExampleColumns, need_label: bool) -> tuple[str, str]:
    """Return (column of the words, column of their tags)."""
    words = columns.text or find_usual_column(where, row, WORDS)
    tags = columns.label or find_usual_column(where, row, TAGS)
    named = [name for name in columns.named if need_label or name != columns.label]
    check_columns(
        where, row, named, {"text": ("words", words)} | ({"label": ("tags", tags)} if need_label else {})
    )
    words, tags = match_columns(where, row, [words, tags])
    return words, tags


def question_and_passage(where: str, row: Mapping, columns: ExampleColumns, need_label: bool) -> list[str]:
    """Return [column of the question, column of the passage]."""
    texts = columns.text or QUESTION, columns.text_pair or CONTEXT
    if set(row) == {TEXTS[0]} and not need_label:
        raise BertJaxError(
            f'{where}: a question needs a passage; give both, as {{"{QUESTION}": "...", "{CONTEXT}": "..."}}'
        )
    answers = columns.label or find_usual_column(where, row, ANSWERS)
    named = [name for name in columns.named if name not in texts and (need_label or name != columns.label)]
    check_columns(where, row, [*texts, *named], {"label": ("answers", answers)} if need_label else {})
    return match_columns(where, row, texts)


def refuse_header(where: str, row: Mapping, columns: ExampleColumns) -> None:
    """Refuse a first row that looks like a header if columns are named by numbers, which is for files without one."""
    if not columns.numbered:
        return
    header = [str(row.get(name)) for name in columns.named]
    usual = {*TEXT_LABELS, *TEXTS, *SECOND_TEXTS, *(name for pair in PAIRS for name in pair)}
    if usual & set(map(normalize_column, header)):
        names = ", ".join(header)
        raise BertJaxError(f"{where} is a header ({names}); name the columns as it does, not by numbers")


def find_text_columns(where: str, row: Mapping, second: tuple[str, ...], pairs: bool) -> tuple[str, ...]:
    """Find the columns of a text or of a pair of texts by their usual names; the first is "" if none is found.

    `second` is the column of the second text if the user names it. Without `pairs`, no second text is looked for."""
    names = [name for pair in PAIRS for name in pair] + [*TEXTS, *SECOND_TEXTS]
    columns = dict(zip(names, match_columns(where, row, names), strict=True))
    evident = [(columns[a], columns[b]) for a, b in PAIRS if columns[a] and columns[b]]
    if evident and pairs and not second:
        return evident[0]
    text = next((columns[name] for name in TEXTS if columns[name] and columns[name] not in second), "")
    seconds = [columns[name] for name in SECOND_TEXTS if columns[name]] if pairs else []
    return (text, *(second or seconds[:1]))


def warn_of_second_text(where: str, row: Mapping, texts: tuple[str, ...], others: Iterable[str]) -> None:
    """Warn that a column which the user did not name was taken for a second text, or could be one but is ignored.

    Pairs of usual names need no warning. `others` are columns that are read, but not as texts."""
    if tuple(map(normalize_column, texts)) in PAIRS:
        return
    if len(texts) > 1:
        warn_caller(
            f'{from_row_on(where)}: "{texts[0]}" and "{texts[1]}" are read as a pair of texts; to read only one of '
            f"them, name it with {setting_of(['text'])}"
        )
        return
    read = {*map(normalize_column, texts), *map(normalize_column, others)}
    if second := find_usual_column(where, row, [name for name in SECOND_TEXTS if name not in read]):
        warn_caller(
            f'{from_row_on(where)}: column "{second}" is ignored; if it holds a second text, name it with '
            f"{setting_of(['text_pair'])}"
        )


def source_labels(spec: str, columns: ExampleColumns = AUTODETECT) -> tuple[str, ...]:
    """Return the labels in the order of their source: GLUE, tfds or a parquet file; () if it does not list them."""
    task = glue.find_glue_task(spec)
    if task:
        return task.labels
    given = tables.source_class_names(spec)
    columns = columns.resolve(spec, given)
    names = {normalize_column(column): labels for column, labels in given.items()}
    of_labels = (normalize_column(column) for column in (columns.label, *TEXT_LABELS, *TAGS))
    return next((names[column] for column in of_labels if column in names), ())
