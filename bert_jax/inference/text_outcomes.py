"""What a model gives for a text, before it is a prediction."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bert_jax.inference.computations import HeadLogits
from bert_jax.inference.runner import Runner
from bert_jax.predictions.kind import Kind
from bert_jax.text.truncation import WINDOWS_ADVICE, TruncationCounter, TruncationWarner, windows_advice


class TextOutcome(NamedTuple):
    raw: Any  # the kind's raw output, see `Kind`
    similarity: float | None = None  # of the text's first window to the training texts; None if not compared


def advice_for(model: Runner, kind: Kind) -> str:
    """Return how a command or a function reads long texts whole; "" if the model cannot."""
    return "" if model.reading(kind).separate_texts else windows_advice()


def make_outcome_function(
    model: Runner,
    kind: Kind,
    long_texts: str = "truncate",
    truncated: TruncationCounter | None = None,
    compares: bool = False,
) -> Callable[[Sequence], Iterator[TextOutcome]]:
    """Return the function that computes the outcome of each text of a list; `compares` adds the similarities.

    Truncated texts are counted in `truncated`; without it there is a warning.
    """
    reading = model.reading(kind, long_texts)
    wanted = HeadLogits(model.require_head(kind.heads, kind.name), len(model.labels), compares)
    counter = truncated or TruncationWarner(
        reading.max_length, "" if reading.separate_texts else WINDOWS_ADVICE
    )

    def compute_outcomes(texts: Sequence) -> Iterator[TextOutcome]:
        windows = kind.encode_windows(model.tokenizer, texts, reading)
        counter.count(parts.encodings[0] for parts in windows)
        outputs = iter(model.run([encoding for parts in windows for encoding in parts.encodings], wanted))
        by_text = [list(islice(outputs, len(parts.encodings))) for parts in windows]
        similarities = [None] * len(by_text)
        if compares:
            similarities = model.scope.similarity(np.stack([first[1] for first, *_ in by_text])).tolist()
            by_text = [[logits for logits, _ in of_text] for of_text in by_text]
        for text, parts, logits, similarity in zip(texts, windows, by_text, similarities, strict=True):
            yield TextOutcome(kind.combine_windows(text, parts, logits), similarity)

    return compute_outcomes
