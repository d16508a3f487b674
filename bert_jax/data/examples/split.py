"""A share of the examples held out, whole documents at a time."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bert_jax.data.examples.example import Example, labels_of
from bert_jax.data.randomness import key_of
from bert_jax.errors import BertJaxError


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
        labels = (label for example in group for label in labels_of(example))
        rarest = min(labels, key=lambda label: (counts[label], label), default="")
        number = group[0].label if isinstance(group[0].label, float) else bool(group[0].label)
        return rarest, number, len(group).bit_length()

    keys = sorted(groups, key=order)
    count = round(share * len(keys))
    if share and not 0 < count < len(keys):
        raise BertJaxError(f"{len(keys)} documents cannot be split with {share} of them held out; add more")
    edges = np.linspace(0, len(keys), count + 1).round().astype(int)
    held = {min(keys[a:b], key=lambda key: key_of(seed, key)) for a, b in pairwise(edges)}
    parts: tuple[list[Example], list[Example]] = [], []
    for example in examples:
        parts[(example.document or example.text) in held].append(example)
    return parts
