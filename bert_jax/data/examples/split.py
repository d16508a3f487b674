"""Split examples into a training and a held-out set, or into folds, without splitting a document."""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.example import E, Example, labels_of
from bert_jax.data.randomness import random_key
from bert_jax.text.encoding import Text


def train_validation_split(examples: Sequence[E], share: float, seed: int = 0) -> tuple[list[E], list[E]]:
    """Return (training examples, held-out examples). A `share` of the documents is held out.

    Similar documents are neighbours in a sorted list; one is drawn from each stretch of neighbours (stratification)."""
    of_example = document_keys(examples)
    keys = sort_documents(examples, of_example)
    count = round(share * len(keys))
    if share and not 0 < count < len(keys):
        raise BertJaxError(
            f"{describe_documents(examples, keys)} cannot be split so that a share of {share} is held out; add more"
        )
    edges = np.linspace(0, len(keys), count + 1).round().astype(int)
    held = {min(keys[a:b], key=lambda key: random_key(seed, key)) for a, b in pairwise(edges)}
    parts: tuple[list[E], list[E]] = [], []
    for example, key in zip(examples, of_example, strict=True):
        parts[key in held].append(example)
    return parts


def assign_folds(examples: Sequence[Example], count: int) -> np.ndarray:
    """Return the fold of each example. Of every `count` neighbouring documents, one goes to each fold."""
    of_example = document_keys(examples)
    keys = sort_documents(examples, of_example)
    if len(keys) < count:
        raise BertJaxError(
            f"{describe_documents(examples, keys)} {'is' if len(keys) == 1 else 'are'} too few for "
            f"data.folds={count}; label more, or set --config.data.folds=0"
        )
    fold: dict = {}
    for first in range(0, len(keys), count):
        neighbours = sorted(keys[first : first + count], key=lambda key: random_key("fold", key))
        fold |= {key: number for number, key in enumerate(neighbours)}
    return np.array([fold[key] for key in of_example])


def describe_documents(examples: Sequence[Example], keys: Collection) -> str:
    """Describe the number of documents, or of different texts if no documents are named.

    >>> same = [Example("a", "x", "row 1"), Example("b", "x", "row 2"), Example("a", "x", "row 3")]
    >>> describe_documents(same, set(document_keys(same)))
    '2 different texts in 3 examples (identical texts stay together)'
    """
    if any(example.document for example in examples):
        return pluralize(len(keys), "document")
    together = " (identical texts stay together)" if len(keys) < len(examples) else ""
    return f"{pluralize(len(keys), 'different text')} in {pluralize(len(examples), 'example')}{together}"


def document_keys(examples: Sequence[Example]) -> list:
    """Return the document of each example. If none is named, texts that are the same but for case and spaces form one;
    its key is the first of them.

    >>> document_keys([Example("A  cat", "x", "row 1"), Example("a mat", "x", "row 2"), Example("a cat", "x", "row 3")])
    ['A  cat', 'a mat', 'A  cat']
    """
    first: dict = {}
    return [
        example.document or first.setdefault(text_key(example.text), example.text) for example in examples
    ]


def text_key(text: Text | tuple[str, ...]) -> str:
    """Return a key that is equal for texts that differ only in case and spaces."""
    parts = (text,) if isinstance(text, str) else text
    return "\n".join(" ".join(part.casefold().split()) for part in parts)


def sort_documents(examples: Sequence[Example], keys: Sequence) -> list:
    """Sort the documents so that neighbours are similar: by their rarest label (or by their number, or by whether they
    have an answer), then by their size."""
    groups: dict = {}
    for example, key in zip(examples, keys, strict=True):
        groups.setdefault(key, []).append(example)
    counts = Counter(label for example in examples for label in labels_of(example))

    def order(key):
        group = groups[key]
        labels = (label for example in group for label in labels_of(example))
        rarest = min(labels, key=lambda label: (counts[label], label), default="")
        number = group[0].label if isinstance(group[0].label, float) else bool(group[0].label)
        return rarest, number, len(group).bit_length()

    return sorted(groups, key=order)
