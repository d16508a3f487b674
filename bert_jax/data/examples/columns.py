"""Which columns of a table hold what: those that are named, or else those that are evident."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bert_jax.data.examples import glue
from bert_jax.errors import BertJaxError, nearest
from bert_jax.text import tables

# The columns that need not be named.
TEXTS = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
         ("text",), ("sentence",), ("review",), ("question",))  # fmt: skip
LABELS = ("label", "labels", "score")
WORDS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "ner", "labels")
ANSWERS = ("answers", "answer")

Located = tuple[str, tables.Row]  # where the row is, and the row


@dataclass(frozen=True)
class Columns:
    """Names of columns; CoNLL and SQuAD files need none of them.

    "" is the evident one, if the table has it. Numbers ("0", "3") name the columns of a csv or tsv file that
    has no header.
    """

    text: str = ""  # or the words, or the question
    pair: str = ""  # the second text, or the passage
    label: str = ""  # or the tags, or the answers
    id: str = ""
    document: str = ""
    separator: str = ","  # between several labels in one cell

    def __post_init__(self):
        if not self.separator:
            raise BertJaxError(
                "the separator of labels is empty; give a character that stands in none of them"
            )

    @property
    def named(self) -> list[str]:
        return [name for name in (self.text, self.pair, self.label, self.id, self.document) if name]

    @property
    def numbered(self) -> bool:
        return bool(self.named) and all(name.isdecimal() for name in self.named)


EVIDENT = Columns()


def evident(where: str, row: Mapping, names: Iterable[str], what: str, needed: bool = True) -> str:
    """The first of `names` that the row has; "" where there is none and none is needed."""
    name = next((name for name in names if name in row), "")
    if needed and not name:
        raise BertJaxError(
            f"{where}: which column holds the {what}? {nearest('', [name[:40] for name in row])}; "
            "name it with --text, --pair or --label, in training with --config.data.columns.text, .pair or .label; "
            "by its number (0, 1, ...) where the file has no header"
        )
    return name


def text_and_label(
    where: str, row: Mapping, columns: Columns, need_label: bool
) -> tuple[tuple[str, ...], str]:
    """(columns of the texts, column of the label)"""
    if columns.numbered:
        header = [str(row.get(name)) for name in columns.named]
        if set(header) & {*LABELS, *(name for names in TEXTS for name in names)}:
            names = ", ".join(header)
            raise BertJaxError(f"{where} is a header ({names}); name the columns by it, not by numbers")
    pair = (columns.pair,) if columns.pair else ()
    texts = (columns.text, *pair)
    if not columns.text:
        fitting = [names for names in TEXTS if set(names) <= row.keys() and len(names) + len(pair) < 3]
        evident(where, row, fitting[0] if fitting else (), "text")
        texts = (*fitting[0], *pair)
    return texts, columns.label or evident(where, row, LABELS, "label", need_label)


def known_labels(spec: str, columns: Columns = EVIDENT) -> tuple[str, ...]:
    """The labels in the order that their source gives them: GLUE, tfds or a parquet file; () where it gives none."""
    task = glue.task_of(spec)
    if task:
        return task.labels
    names = tables.class_names(spec)
    return next((names[column] for column in (columns.label, *LABELS, *TAGS) if column in names), ())
