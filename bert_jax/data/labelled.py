"""Labelled texts: for classes, tags and answers, as people keep them in tables, CoNLL columns and SQuAD's JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from bert_jax.data import tables
from bert_jax.errors import BertJaxError, nearest
from bert_jax.text.tokenizer import Text

KINDS = ("classes", "labels", "number")  # what a classification gives: one class, several at once, a number


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled text, as it stands in the file."""

    text: (
        Text | tuple[str, ...]
    )  # to classify: a text or a pair; to tag: the words; to answer: (question, passage)
    # None where the data has none. Classes: str; several: tuple[str, ...]; number: float; tags: one str a word;
    # answers: ((start character, text), ...), empty where the passage has no answer.
    label: object
    where: str  # "train.csv row 12", for messages
    id: str = ""
    document: str = ""  # examples of one document never part over two splits


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what; CoNLL and SQuAD files need none of it.

    "" is found by itself where the table has an evident one. Numbers ("0", "3") name columns of a csv or tsv file without
    a header.
    """

    text: str = ""  # or the words, or the question
    pair: str = ""  # the second text, or the passage
    label: str = ""  # or the tags, or the answers
    id: str = ""
    document: str = ""
    separator: str = ","  # between several labels in one cell

    @property
    def numbered(self) -> bool:
        given = [name for name in (self.text, self.pair, self.label, self.id, self.document) if name]
        return bool(given) and all(name.isdecimal() for name in given)


def classification(
    spec: str, columns: Columns = Columns(), kind: str = "classes", most: int = 0, need_label: bool = True
) -> list[Example]:
    found = classified(tables.rows(spec, columns.numbered), columns, kind, need_label)
    return list(islice(found, most or None))


def classified(rows: Iterable, columns: Columns, kind: str, need_label: bool = True) -> Iterator[Example]:
    for where, row in rows:
        text = columns.text or next(name for name in ("sentence1", "text", "sentence") if name in row)
        pair = columns.pair or ("sentence2" if text == "sentence1" else "")
        label = row[columns.label or "label"] if need_label else row.get(columns.label or "label")
        if label is not None:
            if kind == "number":
                label = float(label)
            elif kind == "classes":
                label = str(label)
            else:
                label = tuple(label.split(columns.separator) if isinstance(label, str) else map(str, label))
        yield Example(
            (row[text], row[pair]) if pair else row[text], label, where, str(row.get(columns.id, ""))
        )


def tagging(spec: str, columns: Columns = Columns(), most: int = 0, need_label: bool = True) -> list[Example]:
    return list(islice(conll(spec, tables.lines(spec)), most or None))


def conll(name: str, lines: Iterable[str]) -> Iterator[Example]:
    words, tags, start, document = [], [], 0, 0
    for number, line in enumerate([*lines, ""], 1):
        cells = line.split()
        if cells and cells[0] != "-DOCSTART-":
            start = start or number
            words.append(cells[0])
            tags.append(cells[-1])
            continue
        if words:
            yield Example(tuple(words), tuple(tags), f"{name} row {start}", "", f"{name} document {document}")
        words, tags, start = [], [], 0
        document += bool(cells)


def answering(
    spec: str, columns: Columns = Columns(), most: int = 0, need_label: bool = True
) -> list[Example]:
    return list(islice(squad(spec, tables.document(spec)), most or None))


def squad(name: str, value: dict) -> Iterator[Example]:
    for a, article in enumerate(value["data"], 1):
        for p, paragraph in enumerate(article["paragraphs"], 1):
            for q, question in enumerate(paragraph["qas"], 1):
                answers = tuple((found["answer_start"], found["text"]) for found in question["answers"])
                where = f"{name} article {a}, paragraph {p}, question {q}"
                text = (question["question"], paragraph["context"])
                yield Example(text, answers, where, question["id"], article.get("title", ""))


def label_names(examples: Sequence[Example], kind: str, known: Sequence[str] = ()) -> tuple[str, ...]:
    """The labels that occur, in the order of `known`, or else numbers as numbers and words by the alphabet.

    `kind` is one of KINDS, or "tags".
    """
    if kind == "number":
        return ()
    found = {label for e in examples for label in ((e.label,) if kind == "classes" else e.label)}
    return tuple(name for name in known) or tuple(sorted(found, key=sensibly))


def sensibly(name: str):
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)


def check(examples: Sequence[Example], labels: Sequence[str], kind: str) -> None:
    """Every label is one of `labels`, and there are two of them at least."""
    if kind == "number":
        return
    if len(labels) < 2:
        raise BertJaxError(f"{examples[0].where}: one class only ({labels[0]}); two or more are wanted")
    for example in examples:
        for label in (example.label,) if kind == "classes" else example.label:
            if label not in labels:
                raise BertJaxError(
                    f'{example.where}: label "{label}" does not occur in training; {nearest(label, labels)}'
                )


def split(examples: Sequence[Example], share: float, seed: int = 0) -> tuple[list[Example], list[Example]]:
    """(to train on, held out), by document."""
    every = max(2, round(1 / share)) if share else 0
    documents = list(dict.fromkeys(example.document or example.text for example in examples))
    held = set(documents[seed % every :: every]) if every else set()
    parts: tuple[list[Example], list[Example]] = [], []
    for example in examples:
        parts[(example.document or example.text) in held].append(example)
    return parts
