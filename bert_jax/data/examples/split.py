"""Split examples into a training and a held-out set, or into folds, without splitting a document."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.example import Example, labels_of
from bert_jax.data.randomness import random_key

E = TypeVar("E", bound=Example)


def train_validation_split(examples: Sequence[E], share: float, seed: int = 0) -> tuple[list[E], list[E]]:
    """Return (training examples, held-out examples). A `share` of the documents is held out.

    Similar documents are neighbours in a sorted list; one is drawn from each stretch of neighbours (stratification)."""
    keys = sort_documents(examples)
    count = round(share * len(keys))
    if share and not 0 < count < len(keys):
        raise BertJaxError(
            f"{describe_documents(examples, keys)} cannot be split so that a share of {share} is held out; add more"
        )
    edges = np.linspace(0, len(keys), count + 1).round().astype(int)
    held = {min(keys[a:b], key=lambda key: random_key(seed, key)) for a, b in pairwise(edges)}
    parts: tuple[list[E], list[E]] = [], []
    for example in examples:
        parts[document_key(example) in held].append(example)
    return parts


def assign_folds(examples: Sequence[Example], count: int) -> np.ndarray:
    """Return the fold of each example. Of every `count` neighbouring documents, one goes to each fold."""
    keys = sort_documents(examples)
    if len(keys) < count:
        raise BertJaxError(
            f"{describe_documents(examples, keys)} {'is' if len(keys) == 1 else 'are'} too few for "
            f"data.folds={count}; label more, or set --config.data.folds=0"
        )
    fold: dict = {}
    for first in range(0, len(keys), count):
        neighbours = sorted(keys[first : first + count], key=lambda key: random_key("fold", key))
        fold |= {key: number for number, key in enumerate(neighbours)}
    return np.array([fold[document_key(example)] for example in examples])


def describe_documents(examples: Sequence[Example], keys: Sequence) -> str:
    """Describe the number of documents, or of different texts if no documents are named.

    >>> same = [Example("a", "x", "row 1"), Example("b", "x", "row 2"), Example("a", "x", "row 3")]
    >>> describe_documents(same, sort_documents(same))
    '2 different texts in 3 examples (identical texts stay together)'
    """
    if any(example.document for example in examples):
        return pluralize(len(keys), "document")
    together = " (identical texts stay together)" if len(keys) < len(examples) else ""
    return f"{pluralize(len(keys), 'different text')} in {pluralize(len(examples), 'example')}{together}"


def document_key(example: Example):
    """Return the document that an example belongs to; if none is named, equal texts form a document."""
    return example.document or example.text


def sort_documents(examples: Sequence[Example]) -> list:
    """Sort the documents so that neighbours are similar: by their rarest label (or by their number, or by whether they
    have an answer), then by their size."""
    groups: dict = {}
    for example in examples:
        groups.setdefault(document_key(example), []).append(example)
    counts = Counter(label for example in examples for label in labels_of(example))

    def order(key):
        group = groups[key]
        labels = (label for example in group for label in labels_of(example))
        rarest = min(labels, key=lambda label: (counts[label], label), default="")
        number = group[0].label if isinstance(group[0].label, float) else bool(group[0].label)
        return rarest, number, len(group).bit_length()

    return sorted(groups, key=order)
