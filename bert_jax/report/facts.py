"""What a reader of scores must know of the data: how much there is, how even, how long, what stands there twice."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.data.examples.example import Example, labels_of
from bert_jax.text.tokenizer import Tokenizer

SAMPLE = 5000  # texts of a part whose tokens are counted


@dataclass(frozen=True)
class Facts:
    examples: int
    labels: dict[str, int]
    lengths: np.ndarray  # tokens, of SAMPLE texts at most
    longer: float  # the share of them that does not fit
    repeated: int  # texts that stood there before, in the same part
    conflicting: int  # of all texts that occur more than once, those with different labels
    shared: dict[str, int]  # texts that also stand in another part, by its name


def facts(parts: Mapping[str, Sequence[Example]], tokenizer: Tokenizer, longest: int) -> dict[str, Facts]:
    """`longest`: the tokens the model reads of a text."""
    keys = {name: [key(example.text) for example in examples] for name, examples in parts.items()}
    found = {}
    for name, examples in parts.items():
        every = -(-len(examples) // SAMPLE)
        texts = [joined(example.text) for example in examples[::every]]
        lengths = np.array([len(encoding.ids) for encoding in tokenizer.encode(texts)])
        seen: dict = {}
        for one, example in zip(keys[name], examples, strict=True):
            seen.setdefault(one, set()).add(example.label)
        here = set(seen)
        found[name] = Facts(
            len(examples),
            dict(Counter(kinds(examples)).most_common()),
            lengths,
            float((lengths > longest).mean()),
            len(examples) - len(here),
            sum(len(labels) > 1 for labels in seen.values()),
            {other: len(here & set(theirs)) for other, theirs in keys.items() if other != name},
        )
    return found


def kinds(examples: Sequence[Example]):
    """What is counted: labels, tags, or whether there is an answer; of a number nothing."""
    for example in examples:
        if labels_of(example):
            yield from labels_of(example)
        elif isinstance(example.label, tuple):
            yield "answer" if example.label else "none"


def key(text) -> str:
    """Texts that differ by case and spaces alone are the same."""
    parts = (text,) if isinstance(text, str) else text
    return "\n".join(" ".join(part.casefold().split()) for part in parts)


def joined(text):
    return " ".join(text) if isinstance(text, tuple) and len(text) != 2 else text
