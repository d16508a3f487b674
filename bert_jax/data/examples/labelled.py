"""Labelled texts: for classes, tags and answers, as people keep them in tables, CoNLL columns and SQuAD's JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from typing import Literal, get_args

import numpy as np

from bert_jax.data.examples import glue
from bert_jax.data.examples.cells import (
    Classes,
    answers_in,
    blank,
    cell,
    evident,
    label_in,
    listed,
    name_in,
    number_in,
    plain_answer,
    several_in,
    text_in,
    words_in,
)
from bert_jax.data.randomness import key_of
from bert_jax.errors import BertJaxError, nearest
from bert_jax.text import tables
from bert_jax.text.readers import expanded
from bert_jax.text.tokenizer import Text

# What a classification gives: one class, several at once, a number.
Kind = Literal["classes", "labels", "number"]
KINDS: tuple[str, ...] = get_args(Kind)
# The columns that are found by themselves.
TEXTS = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
         ("text",), ("sentence",), ("review",), ("question",))  # fmt: skip
LABELS = ("label", "labels", "score")
WORDS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "ner", "labels")
ANSWERS = ("answers", "answer")

Located = tuple[str, tables.Row]
Answer = tuple[int, str]  # its first character in the passage, and its text
# A class; several, or a tag a word; a number; all right answers, which are none where the passage has none. None where
# the data has no label.
Label = str | tuple[str, ...] | float | tuple[Answer, ...] | None


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled text, as it stands in the file."""

    text: (
        Text | tuple[str, ...]
    )  # to classify: a text or a pair; to tag: the words; to answer: (question, passage)
    label: Label
    where: str  # "train.csv row 12", for messages
    id: str = ""
    document: str = ""  # examples of one document never part over two splits


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what; CoNLL and SQuAD files need none of it.

    "" is found by itself where the table has an evident one. Numbers ("0", "3") name the columns of a csv or tsv file
    that has no header.
    """

    text: str = ""  # or the words, or the question
    pair: str = ""  # the second text, or the passage
    label: str = ""  # or the tags, or the answers
    id: str = ""
    document: str = ""
    separator: str = ","  # between several labels in one cell

    @property
    def named(self) -> list[str]:
        return [name for name in (self.text, self.pair, self.label, self.id, self.document) if name]

    @property
    def numbered(self) -> bool:
        return bool(self.named) and all(name.isdecimal() for name in self.named)


@dataclass(frozen=True)
class Parts:
    """The examples of a run, by what they are for; no document is in two of them."""

    train: list[Example]
    heldout: list[Example]
    calibration: list[Example]


def classification(
    spec: str, columns: Columns = Columns(), kind: str = "classes", most: int = 0, need_label: bool = True
) -> list[Example]:
    """Texts or pairs of a table, at `most` so many, or all of them."""
    task = glue.task_of(spec)
    if task:
        if task.kind != kind:
            raise BertJaxError(f'{spec} has labels of kind "{task.kind}", not "{kind}"')
        texts, label = glue.columns_of(spec, task)
        if not columns.text:
            columns = replace(columns, text=texts[0], pair=columns.pair or "".join(texts[1:]))
        columns = replace(columns, label=columns.label or label)
    rows = tables.rows(spec, columns.numbered)
    return gathered(spec, classified(rows, columns, kind, need_label, task), most)


def tagging(spec: str, columns: Columns = Columns(), most: int = 0, need_label: bool = True) -> list[Example]:
    """Words with a tag each, of a table that holds lists of them or of CoNLL's columns."""
    return gathered(spec, tagged_in(spec, columns, need_label), most)


def tagged_in(spec: str, columns: Columns, need_label: bool) -> Iterator[Example]:
    for name in expanded([spec]):
        # Columns between tabs are CoNLL's, too.
        if name.startswith("tfds:") or tables.ending(name) in set(tables.ENDINGS) - {".tsv", ".txt"}:
            yield from tagged(tables.file_rows(name, columns.numbered), columns, need_label)
        else:
            documents = any(line.startswith("-DOCSTART-") for line in tables.lines(name))
            yield from conll(name, tables.lines(name), need_label, documents)


def answering(
    spec: str, columns: Columns = Columns(), most: int = 0, need_label: bool = True
) -> list[Example]:
    """Questions about passages, of SQuAD's JSON or of a table in the shape that the `datasets` library gives it."""
    return gathered(spec, asked_in(spec, columns, need_label), most)


def asked_in(spec: str, columns: Columns, need_label: bool) -> Iterator[Example]:
    for name in expanded([spec]):
        value = tables.json_of(name) if tables.ending(name) == ".json" else None
        articles = value.get("data") if isinstance(value, dict) else None
        if isinstance(articles, list) and any(
            isinstance(one, dict) and "paragraphs" in one for one in articles
        ):
            yield from squad(name, articles, need_label)
        elif value is not None:
            yield from asked(tables.listed_rows(name, value), columns, need_label)
        else:
            yield from asked(tables.file_rows(name, columns.numbered), columns, need_label)


def gathered(spec: str, examples: Iterator[Example], most: int) -> list[Example]:
    found = list(islice(examples, most or None))
    if not found:
        raise BertJaxError(f"{spec} holds no example")
    first: dict[str, Example] = {}
    for example in found:
        if example.id and first.setdefault(example.id, example) is not example:
            raise BertJaxError(
                f'{example.where} has the id "{example.id}" of {first[example.id].where}; each needs its own'
            )
    return found


# From here to `asked`: rows as they come, in flat memory.


def classified(
    rows: Iterable[Located],
    columns: Columns = Columns(),
    kind: str = "classes",
    need_label: bool = True,
    task: glue.Task | None = None,
) -> Iterator[Example]:
    if kind not in KINDS:
        raise BertJaxError(f'no kind "{kind}" of labels; {nearest(kind, KINDS)}')
    class_of = Classes()
    texts: tuple[str, ...] = ()
    for where, row in rows:
        if not texts:
            texts, label_column = places(where, row, columns, need_label)
        parts = tuple(text_in(where, row, column) for column in texts)
        empty = [column for column, part in zip(texts, parts, strict=True) if not part.strip()]
        # QQP has pairs with an empty half, and they count.
        if empty and (not task or len(empty) == len(parts)):
            raise blank(where, empty[0])
        label = label_in(where, row, label_column, need_label, may_be_blank=kind == "labels")
        if label is not None:
            place = f'{where}: column "{label_column}"'
            if kind == "number":
                label = number_in(place, label)
            elif kind == "labels":
                label = several_in(place, label, columns.separator, class_of)
            else:
                label = class_of(place, label)
                if task and label.isdecimal() and int(label) < len(task.labels):
                    label = task.labels[int(label)]
        text = parts if len(parts) > 1 else parts[0]
        yield Example(
            text, label, where, name_in(where, row, columns.id), name_in(where, row, columns.document)
        )


def places(where: str, row: tables.Row, columns: Columns, need_label: bool) -> tuple[tuple[str, ...], str]:
    """The columns of the texts and of the label."""
    if columns.numbered:
        header = [str(row.get(name)) for name in columns.named]
        if set(header) & {*LABELS, *(name for names in TEXTS for name in names)}:
            raise BertJaxError(
                f"{where} is a header ({', '.join(header)}); name the columns by it, not by numbers"
            )
    texts = (columns.text, *([columns.pair] if columns.pair else []))
    if not columns.text:
        found = [names for names in TEXTS if set(names) <= row.keys() and len(names) + bool(columns.pair) < 3]
        evident(where, row, [name for names in found for name in names], "text")
        texts = (*found[0], *texts[1:])
    label = columns.label or next((name for name in LABELS if name in row), "")
    if need_label and not label:
        evident(where, row, LABELS, "label")
    return texts, label


def tagged(
    rows: Iterable[Located], columns: Columns = Columns(), need_label: bool = True
) -> Iterator[Example]:
    class_of = Classes()
    for where, row in rows:
        words_column = columns.text or evident(where, row, WORDS, "words")
        tags_column = columns.label or (
            evident(where, row, TAGS, "tags")
            if need_label
            else next((name for name in TAGS if name in row), "")
        )
        words = words_in(f'{where}: column "{words_column}"', cell(where, row, words_column))
        tags = label_in(where, row, tags_column, need_label)
        if tags is not None:
            place = f'{where}: column "{tags_column}"'
            tags = tuple(class_of(place, tag) for tag in listed(place, tags))
            if len(tags) != len(words):
                raise BertJaxError(f"{where} has {len(words)} words but {len(tags)} tags; each word has one")
        yield Example(
            words, tags, where, name_in(where, row, columns.id), name_in(where, row, columns.document)
        )


def conll(
    name: str, lines: Iterable[str], need_label: bool = True, documents: bool = False
) -> Iterator[Example]:
    """A word a line, its tag in the last column; blank lines part sentences, -DOCSTART- lines documents."""
    words: list[str] = []
    tags: list[str] = []
    start, width, document = 0, 0, 1
    for number, line in enumerate(chain(lines, [""]), 1):
        line = line.strip(" \r\n")
        cells = line.split("\t") if "\t" in line else [part for part in line.split(" ") if part]
        if not any(cells) or cells[0] == "-DOCSTART-":
            if words:
                label = tuple(tags) if width > 1 else None
                within = f"{name} document {document}" if documents else ""
                yield Example(tuple(words), label, f"{name} row {start}", "", within)
            words, tags = [], []
            document += any(cells)
            continue
        width = width or len(cells)
        if len(cells) != width or not all(part.strip() for part in (cells[0], cells[-1])):
            raise BertJaxError(
                f'{name} row {number} ("{line[:40]}") has not the {width} columns of the rows before it'
            )
        if width == 1 and need_label:
            raise BertJaxError(
                f'{name} row {number} ("{line[:40]}") has one column; a word and its tag are wanted'
            )
        start = start if words else number
        words.append(cells[0])
        tags.append(cells[-1])


def squad(name: str, articles: Iterable, need_label: bool = True) -> Iterator[Example]:
    for a, article in enumerate(articles, 1):
        where = f"{name} article {a}"
        for p, paragraph in enumerate(listed(where, cell(where, article, "paragraphs")), 1):
            where = f"{name} article {a}, paragraph {p}"
            beside = {"context": cell(where, paragraph, "context"), "title": article.get("title", "")}
            for q, question in enumerate(listed(where, cell(where, paragraph, "qas")), 1):
                place = f"{where}, question {q}"
                cell(place, question, "question")
                yield from asked([(place, {**question, **beside})], Columns(), need_label)


def asked(
    rows: Iterable[Located], columns: Columns = Columns(), need_label: bool = True
) -> Iterator[Example]:
    for where, row in rows:
        parts = columns.text or "question", columns.pair or "context"
        question, passage = (text_in(where, row, column) for column in parts)
        if not (question.strip() and passage.strip()):
            raise blank(where, parts[0] if passage.strip() else parts[1])
        column = columns.label or next((name for name in ANSWERS if name in row), ANSWERS[0])
        answers = label_in(where, row, column, need_label, may_be_blank=True)
        if isinstance(answers, str):
            answers = plain_answer(where, passage, answers, row.get("answer_start"))
        if answers is not None:
            answers = answers_in(where, passage, answers, row.get("is_impossible"))
        id = columns.id or ("id" if "id" in row else "")
        document = columns.document or ("title" if row.get("title") else "")
        # Questions about one passage stay together, whatever it is called.
        within = name_in(where, row, document) or passage
        yield Example((question, passage), answers, where, name_in(where, row, id), within)


def known_labels(spec: str, columns: Columns = Columns()) -> tuple[str, ...]:
    """The labels in the order that their source gives them: GLUE, tfds or a parquet file; () where it gives none."""
    task = glue.task_of(spec)
    if task:
        return task.labels
    names = tables.class_names(spec)
    return next((names[column] for column in (columns.label, *LABELS, *TAGS) if column in names), ())


def label_names(examples: Sequence[Example], kind: str, known: Sequence[str] = ()) -> tuple[str, ...]:
    """`known`, or else the labels that occur: numbers as numbers, words by the alphabet.

    `kind` is one of KINDS, or "tags".
    """
    if kind == "number":
        return ()
    found = {label for example in examples for label in labels_of(example)}
    return tuple(known) or tuple(sorted(found, key=sensibly))


def labels_of(example: Example) -> tuple[str, ...]:
    """Of a class, several labels or tags; a number and answers have none."""
    if isinstance(example.label, str):
        return (example.label,)
    if isinstance(example.label, tuple):
        return tuple(label for label in example.label if isinstance(label, str))
    return ()


def answers_of(example: Example) -> tuple[Answer, ...]:
    """Of a question; a class, labels and tags have none."""
    if isinstance(example.label, tuple):
        return tuple(answer for answer in example.label if not isinstance(answer, str))
    return ()


def sensibly(label: str):
    """
    >>> sorted(["10", "9", "no"], key=sensibly)
    ['9', '10', 'no']
    """
    return (0, int(label), "") if label.removeprefix("-").isdecimal() else (1, 0, label)


def check(examples: Sequence[Example], labels: Sequence[str], kind: str) -> None:
    """That there is something to tell apart, and no label but `labels`, which are those of training."""
    if kind == "number":
        return
    if len(labels) < (1 if kind == "labels" else 2):
        only = f'only the class "{labels[0]}"' if labels else "no label at all"
        raise BertJaxError(f"{examples[0].where} and all after it: {only}; there is nothing to learn from it")
    known = set(labels)
    for example in examples:
        for label in labels_of(example):
            if label not in known:
                raise BertJaxError(
                    f'{example.where}: label "{label}" does not occur in training; {nearest(label, labels)}'
                )


def split(examples: Sequence[Example], share: float, seed: int = 0) -> tuple[list[Example], list[Example]]:
    """(to train on, held out): a `share` of the documents, every kind of them as far as can be.

    Without documents, equal texts stay together. In the order of the rarest label they have (or their number, or
    whether they have an answer) and of their size, one is drawn from each run of neighbours.
    """
    groups: dict = {}
    for example in examples:
        groups.setdefault(example.document or example.text, []).append(example)
    counts = Counter(label for example in examples for label in labels_of(example))

    def order(key):
        group = groups[key]
        rarest = min(
            (label for example in group for label in labels_of(example)),
            key=lambda label: (counts[label], label),
            default="",
        )
        number = group[0].label if isinstance(group[0].label, float) else bool(group[0].label)
        return rarest, number, len(group).bit_length()

    keys = sorted(groups, key=order)
    count = round(share * len(keys))
    if share and not 0 < count < len(keys):
        raise BertJaxError(
            f"{len(keys)} documents cannot be split with {share} of them held out; "
            "there must be at least one on either side"
        )
    edges = np.linspace(0, len(keys), count + 1).round().astype(int)
    held = {min(keys[a:b], key=lambda key: key_of(seed, key)) for a, b in pairwise(edges)}
    parts: tuple[list[Example], list[Example]] = [], []
    for example in examples:
        parts[(example.document or example.text) in held].append(example)
    return parts
