"""Facts about the data, without which scores cannot be judged: its size, label balance, text lengths and duplicates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import text_key
from bert_jax.predictions.kind import Kind
from bert_jax.text.tokenizer import Tokenizer

SAMPLE = 5000  # tokens are counted in at most this many texts of a part


@dataclass(frozen=True)
class DataFacts:
    examples: int
    labels: dict[str, int]
    lengths: np.ndarray  # tokens per text, of at most SAMPLE texts
    longer: float  # the share of these texts that are truncated or need windows
    repeated: int  # duplicates: texts that occur earlier in the same part
    conflicting: int  # the number of distinct texts that occur with different labels
    shared: dict[str, int]  # the number of texts that also occur in another part, by the name of that part


def collect_data_facts(
    parts: Mapping[str, Sequence[Example]],
    tokenizer: Tokenizer,
    longest: int,
    kind: Kind,
) -> dict[str, DataFacts]:
    """Describe each part; `longest` is the most tokens of a text that the model reads."""
    keys = {name: [text_key(example.text) for example in examples] for name, examples in parts.items()}
    described = {}
    for name, examples in parts.items():
        every = -(-len(examples) // SAMPLE)
        texts = [join_words(example.text) for example in examples[::every]]
        lengths = np.array([len(encoding.input_ids) for encoding in tokenizer.encode(texts)])
        here = set(keys[name])
        described[name] = DataFacts(
            len(examples),
            dict(kind.targets.count_labels(examples).most_common()),
            lengths,
            float((lengths > longest).mean()),
            len(examples) - len(here),
            len(find_contradictions(examples, kind)),
            {other: len(here & set(elsewhere)) for other, elsewhere in keys.items() if other != name},
        )
    return described


def find_contradictions(examples: Iterable[Example], kind: Kind) -> list[list[Example]]:
    """Return the duplicates that have different labels, grouped by text."""
    same: dict[str, list[Example]] = {}
    for example in examples:
        same.setdefault(text_key(example.text), []).append(example)
    return [group for group in same.values() if len({format_label(example, kind) for example in group}) > 1]


def format_label(example: Example, kind: Kind) -> str:
    """Return the label of an example as a reader sees it."""
    words = kind.presentation.prediction_text(kind.targets.truth(example), example)
    return f"{words:g}" if isinstance(words, float) else str(words)


def join_words(text):
    return " ".join(text) if isinstance(text, tuple) and len(text) != 2 else text
