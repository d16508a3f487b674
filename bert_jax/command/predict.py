"""A model's answers to the rows of a file or of standard input, as JSON lines: what the verb `predict` runs.

They come in the order of the rows, and no more of either is held than some batches need.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain, tee
from pathlib import Path

from bert_jax.data.examples.columns import EVIDENT, LABELS, TAGS, WORDS, Columns, Located
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.questions import questions_in, questions_in_rows
from bert_jax.data.examples.tags import tags_in, tags_in_rows
from bert_jax.data.examples.texts import texts_in_rows
from bert_jax.errors import BertJaxError
from bert_jax.files import replacing
from bert_jax.inference.classify import chosen, kind_of, logits_of, sure
from bert_jax.inference.model import Model, load
from bert_jax.inference.outcomes import task_of
from bert_jax.text import tables
from bert_jax.text.inputs import ending
from bert_jax.text.lines import LineReader

NOT_ASKED = {*LABELS, *TAGS, "answers"}  # columns that may be there, right or wrong


def write(
    directory, source: str = "-", output: str | None = None, columns: Columns = EVIDENT, long: str = "cut",
    may_be_missing: bool | None = None, precision: float | None = None,
) -> None:  # fmt: skip
    """A JSON object for each row, on standard output or in a file, which then is whole or not there."""
    found = predictions(load(directory), source, columns, long, may_be_missing, precision)
    lines = (json.dumps(one, ensure_ascii=False) for one in found)
    if output is None:
        for line in lines:
            print(line)
        return
    count = 0
    with replacing(Path(output)) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for count, line in enumerate(lines, 1):  # noqa: B007
            file.write(line + "\n")
    print(f"{count:,} predictions in {output}", file=sys.stderr)


def predictions(
    model: Model,
    source: str,
    columns: Columns = EVIDENT,
    long: str = "cut",
    may_be_missing: bool | None = None,
    precision: float | None = None,
) -> Iterator[dict]:
    """With a wanted `precision`, each answer says whether a calibrated model abstains from it."""
    task = task_of(model)
    enough = None if precision is None else sure(model, precision)
    first, examples = peeked(examples_of(source, columns, task))
    if first is None:
        raise BertJaxError(
            f"{'standard input' if source == '-' else source} is empty: there is nothing to predict"
        )
    examples, asked = tee(examples)
    texts = (example.text for example in asked)
    if task == "answer":
        answers = answered(model, texts, may_be_missing, enough)
    elif task == "classify":
        answers = classified(model, texts, long, enough)
    elif isinstance(first.text, tuple):
        if enough is not None:
            raise BertJaxError(
                "--precision is about spans; give texts, not lists of words, which get a tag each"
            )
        answers = ({"tags": tags} for tags in model.tag_words(texts))
    else:
        answers = ({"spans": [rounded(span, enough) for span in spans]} for spans in model.tag(texts))
    for example, answer in zip(examples, answers, strict=True):
        yield ({"id": example.id} if example.id else {}) | answer


def classified(model: Model, texts: Iterator, long: str, enough: float | None) -> Iterator[dict]:
    kind = kind_of(model)
    for logits in logits_of(model, texts, long):
        if kind == "number":
            yield {"number": round(float(logits[0]), 6)}
            continue
        found, score = chosen(model, model.calibration.likely(logits, several=kind == "labels"))
        if kind == "classes":
            yield rounded(found, enough)
        else:
            # The score is that of all of them together: that none is wrong and none is missing.
            labels = [rounded(label) for label in found]
            yield {"labels": labels, "score": round(score, 6)} | abstained(score, enough)


def answered(
    model: Model, texts: Iterator, may_be_missing: bool | None, enough: float | None
) -> Iterator[dict]:
    one, other = tee(texts)
    questions, passages = (question for question, _ in one), (passage for _, passage in other)
    for answer in model.answer(questions, passages, may_be_missing=may_be_missing):
        if answer is None:
            yield {"answer": None}
        else:
            found = rounded(answer, enough)
            yield {"answer": found.pop("text"), **found}


def rounded(found, enough: float | None = None) -> dict:
    said = {name: round(x, 6) if isinstance(x, float) else x for name, x in asdict(found).items()}
    return said | abstained(found.score, enough)


def abstained(score: float, enough: float | None) -> dict[str, bool]:
    return {} if enough is None else {"abstained": score < enough}


def examples_of(source: str, columns: Columns, task: str) -> Iterator[Example]:
    """Without their labels, whether there are any or not."""
    suffix = "" if source == "-" or source.startswith("tfds:") else ending(source)
    if task == "answer" and suffix == ".json":
        return questions_in(source, columns, need_label=False)  # which knows SQuAD's
    if task == "tag" and suffix not in (*tables.ENDINGS, ""):
        return tags_in(source, columns, need_label=False)  # which knows CoNLL's columns
    plain = source == "-" or suffix == ".txt"
    first, rows = peeked(line_rows(source) if plain else tables.read_rows(source, columns.numbered))
    row = first[1] if first else {}
    if not columns.id and "id" in row:
        columns = replace(columns, id="id")
    asked = (
        (
            where,
            {name: value for name, value in row.items() if name not in NOT_ASKED or name in columns.named},
        )
        for where, row in rows
    )
    if task == "answer":
        return questions_in_rows(asked, columns, need_label=False)
    words = columns.text or next((name for name in WORDS if name in row), "")
    if task == "tag" and (words in WORDS or isinstance(row.get(words), list)):
        return tags_in_rows(asked, columns, need_label=False)
    return texts_in_rows(asked, columns, need_label=False)


def line_rows(source: str) -> Iterator[Located]:
    """Lines that are JSON objects, if the first one is, or else each a text."""
    reader = LineReader(source)
    first, lines = peeked(iter(reader))
    if first and first.lstrip().startswith("{"):
        return tables.json_rows(reader.name, lines)
    return tables.number_rows(reader.name, ({"text": line.rstrip("\r\n")} for line in lines))


def peeked(items: Iterator) -> tuple:
    """(the first or None, all of them)."""
    items = iter(items)
    for first in items:
        return first, chain([first], items)
    return None, items
