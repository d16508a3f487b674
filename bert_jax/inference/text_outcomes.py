"""What a model gives for a text, before it is a prediction."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, source_labels
from bert_jax.data.examples.example import Example
from bert_jax.inference.computations import HeadLogits, PooledStates
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.runner import ModelInputs, Runner, TextPipeline
from bert_jax.inference.streaming import map_texts
from bert_jax.predictions.kind import Kind, Outcomes
from bert_jax.text.truncation import WINDOWS_ADVICE, TruncationCounter, TruncationWarner, windows_advice


class TextOutcome(NamedTuple):
    raw: Any  # the kind's raw output, see `Decoder`
    similarity: float | None = None  # of the text's first window to the training texts; None if not compared


def advice_for(model: Runner, kind: Kind) -> str:
    """Return how a command or a function reads long texts whole; "" if the model cannot."""
    return "" if model.encoding_options(kind).separate_texts else windows_advice()


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
        self.encoding_options = model.encoding_options(kind, long_texts)
        wanted = HeadLogits(model.require_head(kind.heads, kind.name), len(model.labels), compares)
        advice = "" if self.encoding_options.separate_texts else WINDOWS_ADVICE
        super().__init__(
            model, wanted, truncated or TruncationWarner(self.encoding_options.max_length, advice)
        )

    def preprocess(self, texts: Sequence) -> ModelInputs:
        windows = self.kind.reader.encode(self.model.tokenizer, texts, self.encoding_options)
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
        rows = zip(inputs.texts, inputs.parts, by_text, similarities, strict=True)
        for text, parts, logits, similarity in rows:
            yield TextOutcome(self.kind.decoder.combine_windows(text, parts, logits), similarity)


def mean_state_vectors(model: Runner, texts: Sequence, long_texts: str = "truncate") -> np.ndarray:
    """Return the vectors [N, D] by which texts are compared: the mean states of the first window, normalized."""
    windows = model.kind.reader.encode(model.tokenizer, texts, model.encoding_options(model.kind, long_texts))
    first = [text.encodings[0] for text in windows]
    return np.stack(model.run(first, PooledStates("mean", normalize=True)))


def read_examples(
    model: Encoder, data: str, columns: ExampleColumns = AUTODETECT
) -> tuple[list[Example], Sequence[str]]:
    """Return the examples of a file for this model, and the labels in the order that the file defines, if it does."""
    if columns.label_separator and not model.kind.separates_labels:
        raise BertJaxError(
            f"--label-separator is for a model of several labels per text, and this one predicts {model.kind.name}; "
            "leave it out"
        )
    columns = model.origin.complete_columns(columns)
    return model.kind.reader.read(data, columns), source_labels(data, columns)


def predict_outcomes(
    model: Encoder,
    examples: Sequence[Example],
    label_order: Sequence[str] = (),
    long_texts: str = "truncate",
    compares: bool = False,
) -> Outcomes:
    """Return the model's outcomes for the examples; if it `compares`, with their similarities to the training texts."""
    kind, notes = model.kind.match_labels(examples, label_order)
    truncated = TruncationCounter(model.config.max_position_embeddings)
    compute_outcomes = OutcomePipeline(model, kind, long_texts, truncated, compares)
    outcomes = map_texts([example.text for example in examples], compute_outcomes)
    if notice := truncated.notice(advice_for(model, kind)):
        notes = [*notes, notice]
    near = np.array([outcome.similarity for outcome in outcomes], np.float32) if compares else None
    return Outcomes(kind, examples, [outcome.raw for outcome in outcomes], model.calibration, notes, near)
