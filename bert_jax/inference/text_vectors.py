"""How a model turns texts into vectors: its prompts, its windows, its pooling."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.hub.sentence_transformers import TextSettings
from bert_jax.inference.computations import Computation, PooledStates
from bert_jax.inference.runner import ModelInputs, Runner, TextPipeline
from bert_jax.models.pooling_weights import POOLINGS
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.truncation import WINDOWS_ADVICE, TruncationCounter, TruncationWarner

Result = TypeVar("Result")
# The usual names of the prompts for queries and for documents.
QUERY_PROMPTS, DOCUMENT_PROMPTS = ("query",), ("document", "passage", "corpus")


class PromptText(NamedTuple):
    """A text to put before each text, where a prompt of the embedder could be named instead."""

    text: str


class PromptedPipeline(TextPipeline[Result]):
    """Computes something for texts with a prompt before each; long texts are truncated or read in windows."""

    def __init__(
        self, model: Runner, computation: Computation, prompt: str | PromptText | None, long_texts: str,
        truncated: TruncationCounter | None,
    ):  # fmt: skip
        self.before = prompt_text(model.text_settings, prompt)
        self.encoding_options = embedder_encoding_options(model, long_texts)
        counter = truncated or TruncationWarner(self.encoding_options.max_length, WINDOWS_ADVICE)
        super().__init__(model, computation, counter)

    def preprocess(self, texts: Sequence) -> ModelInputs:
        prepared = prepare_texts(self.model.text_settings, texts, self.before)
        windows = self.encoding_options.encode(self.model.tokenizer, prepared)
        rows = [window for parts in windows for window in parts]
        return ModelInputs(texts, rows, [parts[0] for parts in windows], windows)


class EmbeddingPipeline(PromptedPipeline[np.ndarray]):
    """Computes the vectors [N, D] of a list of texts, with the settings of `Embedder.encode`.

    With `truncated`, truncated texts are counted there, and no warning is given.
    """

    def __init__(
        self, model: Runner, *, prompt: str | PromptText | None = None, pooling: str | None = None,
        normalize: bool | None = None, long_texts: str = "truncate", dimensions: int | None = None,
        truncated: TruncationCounter | None = None,
    ):  # fmt: skip
        embedder = model.embedder
        if model.layout.sparse:
            raise BertJaxError(
                "dense vectors are needed here, and this model gives sparse ones; name a dense embedder"
            )
        if embedder.unknown:
            raise BertJaxError(
                f"this embedder needs {embedder.unknown}, which is not supported; bert_jax.Encoder.load gives plain "
                "vectors"
            )
        pooling = embedder.pooling if pooling is None else pooling
        check_name(pooling, POOLINGS, "pooling")
        if dimensions is not None:
            width = model.layout.vector_size
            check_number(dimensions, "dimensions", is_whole=True, allowed=Range(1, width))
        self.normalize = embedder.normalize if normalize is None else normalize
        self.dimensions = dimensions
        computation = PooledStates(pooling, projection=embedder.projection)
        super().__init__(model, computation, prompt, long_texts, truncated)

    def postprocess(self, inputs: ModelInputs, outputs: list) -> np.ndarray:
        vectors = np.stack(outputs)
        if len(vectors) > len(inputs.texts):
            vectors = average_windows(vectors, inputs.parts)
        vectors = vectors[:, : self.dimensions]
        if self.normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return vectors


def embedder_encoding_options(model: Runner, long_texts: str = "truncate") -> EncodingOptions:
    """Return how the model reads texts to embed them."""
    longest = model.config.max_position_embeddings
    return EncodingOptions(min(model.text_settings.max_length or longest, longest), long_texts)


def find_prompt_name(embedder: TextSettings, names: Sequence[str]) -> str | None:
    """Return the first of these names that the embedder has a prompt for, or None: the default prompt, if any."""
    return next((name for name in names if name in embedder.prompts), None)


def prompt_text(embedder: TextSettings, prompt: str | PromptText | None) -> str:
    """Return the text of a prompt, by default of the embedder's default prompt, or "" if it has none."""
    if isinstance(prompt, PromptText):
        return check_prompt(embedder, prompt.text)
    if prompt is None and embedder.default_prompt is None:
        return ""
    name = embedder.default_prompt if prompt is None else prompt
    if not embedder.prompts:
        raise BertJaxError(f'this embedder has no prompts, so none called "{name!s:.60}"; leave it out')
    check_name(name, embedder.prompts, "prompt of this embedder")
    return check_prompt(embedder, embedder.prompts[str(name)])


def check_prompt(embedder: TextSettings, before: str) -> str:
    """Return the text of a prompt; refuse it if the model cannot read it."""
    if not isinstance(before, str):
        raise BertJaxError(f"prompt must be a text, not {before!r:.40}; prompt_name names one of the model's")
    if before and not embedder.pools_prompt:
        raise BertJaxError("this embedder leaves its prompt out of the pooling, which is not supported")
    return before


def prepare_texts(embedder: TextSettings, texts: Sequence, before: str) -> Sequence:
    """Return the texts with the prompt `before` in front, in lower case if the embedder reads them so.

    Only single texts get the prompt, not pairs.
    """
    texts = [before + text if isinstance(text, str) else text for text in texts] if before else texts
    return [lowercase(text) for text in texts] if embedder.lower_case else texts


def lowercase(text):
    if isinstance(text, tuple | list):
        return tuple(map(lowercase, text))
    return text.lower() if isinstance(text, str) else text


def average_windows(vectors: np.ndarray, windows) -> np.ndarray:
    """Average the vectors [W, D] of windows to one vector for each text, weighted by the tokens of each window."""
    ends = np.cumsum([len(parts) for parts in windows])[:-1]
    means = [
        np.average(of_text, axis=0, weights=np.array([len(window.input_ids) for window in parts], np.float32))
        for of_text, parts in zip(np.split(vectors, ends), windows, strict=True)
    ]
    return np.stack(means).astype(np.float32)
