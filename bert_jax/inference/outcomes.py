"""What a model says of labelled examples, one by one: scores, calibrations and reports are made from it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from bert_jax import metrics
from bert_jax.data.examples.cells import taken_apart
from bert_jax.data.examples.columns import EVIDENT, Columns, known_labels
from bert_jax.data.examples.example import Example, Kind, answers_of, label_names, labels_of
from bert_jax.data.examples.questions import read_questions
from bert_jax.data.examples.tags import read_tags
from bert_jax.data.examples.texts import read_texts
from bert_jax.errors import BertJaxError
from bert_jax.inference.answer import candidates
from bert_jax.inference.classify import kind_of, logits_of
from bert_jax.inference.model import Model
from bert_jax.inference.tag import word_logits
from bert_jax.predictions import calibration as fit
from bert_jax.predictions.calibration import Calibration

TASKS = ("classify", "tag", "answer")
CHUNK = 4096  # texts whose tokens are counted at once


@dataclass
class Outcomes:
    """One entry an example. By kind:

    classes   found: logits [labels]           truth: the class's number
    labels    found: logits [labels]           truth: [labels] of 0 and 1
    number    found: the number                truth: the number
    tags      found: logits [words, labels]    truth: [words] of numbers
    answers   found: (Answer, log odds of none against it)    truth: all right answers' texts, or ()
    """

    kind: Kind | Literal["tags", "answers"]
    labels: tuple[str, ...]
    examples: Sequence[Example]
    found: list
    truth: list
    order: Sequence[str] = ()  # of classes, as the data has them
    notes: list[str] = field(default_factory=list)


def read(model: Model, data: str, columns: Columns = EVIDENT) -> tuple[list[Example], Sequence[str]]:
    """The examples of a file for this model, and the order of labels that the file knows of."""
    task = task_of(model)
    if task == "answer":
        return read_questions(data, columns), ()
    known = known_labels(data, columns)
    if task == "tag":
        return read_tags(data, columns), known
    return read_texts(data, columns, kind_of(model)), known


def outcomes(
    model: Model, examples: Sequence[Example], known: Sequence[str] = (), long: str = "cut"
) -> Outcomes:
    task = task_of(model)
    if task == "answer":
        return of_answers(model, examples)
    return of_tags(model, examples, known) if task == "tag" else of_texts(model, examples, known, long)


def of_texts(model: Model, examples: Sequence[Example], known: Sequence[str], long: str) -> Outcomes:
    kind, texts = kind_of(model), [example.text for example in examples]
    names, notes = ({}, []) if kind == "number" else read_as(examples, model.labels, known)
    if long == "cut":
        notes = notes + cut(model, texts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what is cut, of which all is said already
        found = logits_of(model, texts, long)
    if kind == "number":
        numbers = [example.label for example in examples]
        return Outcomes(kind, (), examples, [float(one[0]) for one in found], numbers, notes=notes)
    number = {label: model.labels.index(name) for label, name in names.items()}
    places = [[number[label] for label in labels_of(example)] for example in examples]
    several = kind == "labels"
    truth = [np.isin(np.arange(len(model.labels)), each) if several else each[0] for each in places]
    # Where the data has an order of its own, as GLUE, its second label is the one that f1 is about.
    theirs = [names[label] for label in known if label in names]
    order = theirs if sorted(theirs) == sorted(model.labels) else model.labels
    return Outcomes(kind, model.labels, examples, found, truth, order, notes)


def of_tags(model: Model, examples: Sequence[Example], known: Sequence[str]) -> Outcomes:
    names, notes = read_as(examples, model.labels, known)
    number = {label: model.labels.index(name) for label, name in names.items()}
    found = word_logits(model, [example.text for example in examples])
    truth = [np.array([number[tag] for tag in labels_of(example)]) for example in examples]
    return Outcomes("tags", model.labels, examples, found, truth, notes=notes)


def of_answers(model: Model, examples: Sequence[Example]) -> Outcomes:
    without = sum(not example.label for example in examples)
    notes = (
        f"{without:,} questions have no answer: the model may give none (SQuAD 2.0; none where it is likelier)"
        if without
        else "every question has an answer: the model must give one (SQuAD 1.1)"
    )
    questions, passages = map(list, zip(*(example.text for example in examples), strict=True))
    found = candidates(model, questions, passages, bool(without))
    truth = [tuple(text for _, text in answers_of(example)) for example in examples]
    return Outcomes("answers", (), examples, found, truth, notes=[notes])


def said(given: Outcomes, calibration: Calibration) -> list:
    """In words, what a model of this calibration says of each example."""
    names = given.labels
    match given.kind:
        case "number":
            return given.found
        case "classes":
            return [names[found.argmax()] for found in given.found]
        case "tags":
            return [[names[i] for i in found.argmax(-1)] for found in given.found]
        case "labels":
            above = calibration.above(len(names))
            likely = (calibration.likely(found, several=True) for found in given.found)
            return [{names[i] for i in np.flatnonzero(one > above)} for one in likely]
        case "answers":
            return ["" if gap > calibration.missing else answer.text for answer, gap in given.found]


def true(given: Outcomes) -> list:
    """The truth, in the same words."""
    names = given.labels
    match given.kind:
        case "classes":
            return [names[i] for i in given.truth]
        case "tags":
            return [[names[i] for i in one] for one in given.truth]
        case "labels":
            return [{names[i] for i in np.flatnonzero(one)} for one in given.truth]
    return given.truth


def scored(given: Outcomes, calibration: Calibration) -> dict[str, float]:
    found, truth = said(given, calibration), true(given)
    match given.kind:
        case "number":
            return metrics.numbers(found, truth)
        case "classes":
            return metrics.classes(found, truth, given.order)
        case "tags":
            return metrics.spans(found, truth)
        case "labels":
            return metrics.several(found, truth, given.labels)
        case "answers":
            return metrics.answers(found, truth)


def calibration_of(given: Outcomes) -> Calibration:
    """What these examples, used for nothing else, tell of the model."""
    match given.kind:
        case "classes":
            return fit.of_classes(np.stack(given.found), np.array(given.truth), given.labels)
        case "labels":
            return fit.of_several(np.stack(given.found), np.stack(given.truth), given.labels)
        case "tags":
            return fit.of_tags(
                given.found,
                given.truth,
                given.labels,
                lambda likely, true: spans_in(likely, true, given.labels),
            )
        case "answers":
            exact, f1 = np.array([right_answer(answer.text, t) for (answer, _), t in answered(given)]).T
            scores = np.array([answer.score for answer, _ in given.found])
            gaps = np.array([gap for _, gap in given.found])
            return fit.of_answers(
                scores, f1, exact.astype(bool), gaps, np.array([not t for t in given.truth])
            )
    return fit.NONE


def answered(given: Outcomes):
    return zip(given.found, given.truth, strict=True)


def right_answer(text: str, truth: Sequence[str]) -> tuple[float, float]:
    """(exact, F1 of words) of one answer, if there is a right one."""
    if not truth:
        return 0.0, 0.0
    found = metrics.answers([text], [truth])
    return found["exact"], found["f1"]


def spans_in(likely: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> list[tuple[float, bool]]:
    """(probability, whether it is right) of each span that is said of a text's words."""
    right = set(metrics.spans_of([labels[i] for i in truth]))
    sure = likely.max(-1)
    spans = metrics.spans_of([labels[i] for i in likely.argmax(-1)])
    return [(float(sure[span[1] : span[2]].mean()), span in right) for span in spans]


def task_of(model: Model) -> str:
    # The last head is the one that the directory is named after.
    for head in reversed(model.layout.heads):
        if head in TASKS:
            return head
    has = ", ".join(model.layout.heads) or "none"
    raise BertJaxError(
        f"this model has no head that gives labels, tags or answers; its heads are: {has}. Train one with "
        "`bert-jax train --config configs/classify.py`, tag.py or answer.py"
    )


def cut(model: Model, texts: Sequence) -> list[str]:
    longest, dropped = model.config.max_positions, []
    for start in range(0, len(texts), CHUNK):
        encodings = model.tokenizer.encode(texts[start : start + CHUNK], max_length=longest)
        dropped += [encoding.dropped for encoding in encodings if encoding.dropped]
    if not dropped:
        return []
    return [
        f"{len(dropped):,} of {len(texts):,} texts are longer than {longest} tokens and were cut, the longest by "
        f"{max(dropped):,} tokens; --long windows reads all of them"
    ]


def read_as(
    examples: Sequence[Example], ours: Sequence[str], known: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """The data's labels -> the model's, where it is plain which is which; and a note of it, where they differ."""
    theirs = label_names(examples, "tags")
    if set(theirs) <= set(ours):
        return {label: label for label in theirs}, []
    names = dict(zip(map(str.casefold, ours), ours, strict=True))
    if len(names) == len(ours) == len(set(map(str.casefold, ours))) and {t.casefold() for t in theirs} <= set(
        names
    ):
        found = {label: names[label.casefold()] for label in theirs}
    elif list(ours) == [f"LABEL_{i}" for i in range(len(ours))]:
        numbers = [str(i) for i in range(len(ours))]
        order = known if len(known) == len(ours) else numbers
        found = {label: ours[order.index(label)] for label in theirs if label in order}
    else:
        found = {}
    if len(found) < len(theirs):
        unread = set(theirs) - set(found)
        unread = unread - set(ours) or unread
        odd = next(example for example in examples if unread & set(labels_of(example)))
        joined = any(name != label and name in taken_apart(label) for name in ours for label in unread)
        hint = (
            "several labels in a cell are told apart by --separator"
            if joined
            else "if they mean the same, name the model's in the id2label of its config.json"
        )
        raise BertJaxError(
            f"{odd.where}: the data's labels are {shortened(theirs)} and the model's {shortened(ours)}, and nothing "
            f"says which is which; {hint}"
        )
    return found, [
        "labels of the data, as the model calls them: " + shortened([f"{a} = {b}" for a, b in found.items()])
    ]


def shortened(labels: Sequence[str]) -> str:
    return ", ".join(labels[:12]) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")
