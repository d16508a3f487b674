"""What a model gives for a text, before it is a prediction."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bert_jax.inference.computations import HeadLogits
from bert_jax.inference.pipeline import ModelInputs, TextPipeline
from bert_jax.inference.runner import Runner
from bert_jax.predictions.kind import Kind
from bert_jax.text.truncation import WINDOWS_ADVICE, TruncationCounter, TruncationWarner, windows_advice


class TextOutcome(NamedTuple):
    raw: Any  # the kind's raw output, see `Kind`
    similarity: float | None = None  # of the text's first window to the training texts; None if not compared


def advice_for(model: Runner, kind: Kind) -> str:
    """Return how a command or a function reads long texts whole; "" if the model cannot."""
    return "" if model.reading(kind).separate_texts else windows_advice()


class OutcomePipeline(TextPipeline[TextOutcome]):
    """Computes the outcome of each text of a list; `compares` adds the similarities.

    Truncated texts are counted in `truncated`; without it there is a warning.
    """

    def __init__(
        self,
        model: Runner,
        kind: Kind,
        long_texts: str = "truncate",
        truncated: TruncationCounter | None = None,
        compares: bool = False,
    ):
        self.kind, self.compares = kind, compares
        self.reading = model.reading(kind, long_texts)
        wanted = HeadLogits(model.require_head(kind.heads, kind.name), len(model.labels), compares)
        advice = "" if self.reading.separate_texts else WINDOWS_ADVICE
        super().__init__(model, wanted, truncated or TruncationWarner(self.reading.max_length, advice))

    def preprocess(self, texts: Sequence) -> ModelInputs:
        windows = self.kind.encode_windows(self.model.tokenizer, texts, self.reading)
        rows = [encoding for parts in windows for encoding in parts.encodings]
        return ModelInputs(texts, rows, [parts.encodings[0] for parts in windows], windows)

    def postprocess(self, inputs: ModelInputs, outputs: list) -> Iterator[TextOutcome]:
        rest = iter(outputs)
        by_text = [list(islice(rest, len(parts.encodings))) for parts in inputs.parts]
        similarities = [None] * len(by_text)
        if self.compares:
            first = np.stack([first[1] for first, *_ in by_text])
            similarities = self.model.scope.similarity(first).tolist()
            by_text = [[logits for logits, _ in of_text] for of_text in by_text]
        for text, parts, logits, similarity in zip(
            inputs.texts, inputs.parts, by_text, similarities, strict=True
        ):
            yield TextOutcome(self.kind.combine_windows(text, parts, logits), similarity)
