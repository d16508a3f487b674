"""Labelled examples, and the checks of their labels."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.data.randomness import random_key
from bert_jax.text.encoding import Text

GoldAnswer = tuple[int, str]  # (index of its first character in the passage, its text)
# A class; several labels, or a tag for each word; a number; or all right answers, () if the passage has none. None if
# the data have no label.
ExampleLabel = str | tuple[str, ...] | float | tuple[GoldAnswer, ...] | None


@dataclass(frozen=True, slots=True)
class Example:
    text: Text | tuple[str, ...]  # a text or a pair; the words to tag; (question, passage)
    label: ExampleLabel
    where: str  # "train.csv row 12", for messages
    id: str = ""
    document: str = ""  # examples of the same document are never split between two sets


@dataclass(frozen=True)
class ExampleSplits:
    """The examples of a run by their use. No document is in two of the sets."""

    train: list[Example]
    validation: list[Example]
    calibration: list[Example]
    folds: int = 0  # the number of folds into which `train` is divided; 0: no folds


E = TypeVar("E", bound=Example)


def collect_examples(spec: str, examples: Iterable[E], most: int) -> list[E]:
    """List at most `most` of the examples, drawn at random; 0: all of them. Refuse examples with equal ids."""
    collected = sample_examples(examples, most) if most else list(examples)
    if not collected:
        raise BertJaxError(f"{spec} holds no example")
    first: dict[str, E] = {}
    for example in collected:
        if example.id and first.setdefault(example.id, example) is not example:
            other = first[example.id].where
            raise BertJaxError(f'{example.where} has the id "{example.id}" of {other}; ids must differ')
    return collected


def sample_examples(examples: Iterable[E], most: int) -> list[E]:
    """Draw `most` of the examples, in their order: always the same ones, and a larger sample contains a smaller one.

    Only the drawn examples are kept in memory."""
    drawn = ((random_key("sample", n), n, example) for n, example in enumerate(examples))
    smallest = heapq.nsmallest(most, drawn)
    return [example for _, _, example in sorted(smallest, key=itemgetter(1))]


def labels_of(example: Example) -> tuple[str, ...]:
    """Return the labels of an example: its class, its labels or its tags; () for a number or answers."""
    if isinstance(example.label, str):
        return (example.label,)
    if isinstance(example.label, tuple):
        return tuple(label for label in example.label if isinstance(label, str))
    return ()


def answers_of(example: Example) -> tuple[GoldAnswer, ...]:
    """Return the answers of a question; () for other examples."""
    if isinstance(example.label, tuple):
        return tuple(answer for answer in example.label if not isinstance(answer, str))
    return ()


def label_names(examples: Sequence[Example], known: Sequence[str] = ()) -> tuple[str, ...]:
    """Return `known`, or else the labels that occur: first numbers in numeric order, then words in alphabetic order."""
    occurring = {label for example in examples for label in labels_of(example)}
    return tuple(known) or tuple(sorted(occurring, key=sort_key))


def sort_key(label: str):
    """
    >>> sorted(["10", "9", "no"], key=sort_key)
    ['9', '10', 'no']
    """
    return (0, int(label), "") if label.removeprefix("-").isdecimal() else (1, 0, label)


def check_labels(examples: Sequence[Example], labels: Sequence[str], fewest: int = 2) -> None:
    """Refuse fewer than `fewest` labels in training, and examples with a label that does not occur in training.

    `labels` are the labels of training."""
    if len(labels) < fewest:
        only = f'only the class "{labels[0]}"' if labels else "no label at all"
        raise BertJaxError(f"{examples[0].where} and all after it: {only}; there is nothing to learn from it")
    known = set(labels)
    for example in examples:
        for label in labels_of(example):
            if label not in known:
                hint = suggest_name(label, labels)
                raise BertJaxError(f'{example.where}: label "{label}" does not occur in training; {hint}')
