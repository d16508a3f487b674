"""Embedders: a vector for each text, with the names and arguments of sentence-transformers."""

import numbers
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self, TypedDict, Unpack, overload

import numpy as np

from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError, check_name, first_line
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.engine import open_directory
from bert_jax.inference.prompted_encoder import PromptedEncoder
from bert_jax.inference.streaming import (
    TextOrPair,
    Texts,
    TextStream,
    Vectors,
    check_batch_options,
    map_texts,
    ordered_texts,
    vector_stacker,
)
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    EmbeddingPipeline,
    PromptText,
)
from bert_jax.inference.zero_shot import (
    LABEL_ALONE,
    TEMPERATURE,
    CandidateLabels,
    SimilarityPipeline,
    ZeroShotLabels,
)
from bert_jax.models.pooling_weights import POOLINGS
from bert_jax.predictions.whole_text_kind import Label
from bert_jax.text.truncation import TruncationWarner

# Arguments of sentence-transformers that have one possible value here, and what to do instead.
ONLY = {
    "output_value": ("sentence_embedding", "hidden_states gives a vector for each token"),
    "precision": ("float32", "`bert-jax embed --quantize` writes rounded vectors"),
    "convert_to_numpy": (True, "all vectors are NumPy arrays"),
    "convert_to_tensor": (False, "torch.from_numpy makes a tensor of the NumPy array"),
    "device": (None, "JAX chooses the device; set the variable JAX_PLATFORMS, such as JAX_PLATFORMS=cpu"),
}


def check_only(**given) -> None:
    """Refuse other values of the arguments in ONLY."""
    for name, value in given.items():
        only, advice = ONLY[name]
        if not (isinstance(value, type(only)) and value == only):
            raise BertJaxError(f"{name}={value!r:.40} is not supported, only {only!r}: {advice}")


def holds_numbers(value: object) -> bool:
    """Whether a value is a number, an array or a list of these."""
    if isinstance(value, list | tuple):
        return not value or holds_numbers(value[0])
    return isinstance(value, numbers.Number) or (hasattr(value, "__array__") and not isinstance(value, str))


def find_vectors(side: Any, name: str) -> np.ndarray | None:
    """Return a vector, an array or a list of vectors as one array [N, D], or None for anything that may be texts."""
    is_list = isinstance(side, list | tuple)
    if not holds_numbers(side) or (is_list and not side):
        return None
    try:
        array = np.stack([np.asarray(row) for row in side]) if is_list else np.asarray(side)
    except (ValueError, TypeError, RuntimeError) as error:
        # Of different sizes, or a tensor of torch on a GPU.
        raise BertJaxError(
            f"{name} is no array or list of vectors of one size: {first_line(error)}"
        ) from error
    if array.dtype.kind in "OSTU":  # texts
        return None
    if array.dtype == bool or not np.can_cast(array.dtype, np.float32, "same_kind"):
        raise BertJaxError(f"{name} must hold texts or real numbers, not {array.dtype}")
    if array.ndim not in (1, 2):
        raise BertJaxError(
            f"{name} must be a vector or an array of vectors, not an array of {array.ndim} dimensions"
        )
    return np.atleast_2d(array.astype(np.float32))


class EncodeSettings(TypedDict, total=False):
    """The other arguments of `Embedder.encode`."""

    batch_size: int | None
    show_progress_bar: bool | None
    output_value: str
    precision: str
    convert_to_numpy: bool
    convert_to_tensor: bool
    device: str | None
    normalize_embeddings: bool
    truncate_dim: int | None
    pooling: str | None
    long_texts: str


class Embedder(PromptedEncoder):
    """Turns texts into vectors whose cosines say how similar the texts are."""

    texts_at_once = 0  # `encode` reads so many; 0: enough for batches of even lengths

    @classmethod
    def accepts(cls, layout: Layout) -> bool:
        return layout.embedder is not None

    @classmethod
    def load(
        cls, path, *, pooling: str | None = None, dtype: str = "float32", attention: str = "auto",
        remat: str = "none", tokenizer: bool = True, engine: str = "auto", batch_invariant: bool = False,
    ) -> Self:  # fmt: skip
        """Open an embedder or, with `pooling`, any encoder: its vectors are then pooled so and normalized to length 1.

        The other arguments are those of `Encoder.load`.

        >>> bert_jax.Embedder.load(DIR, pooling="mean").encode("the cat").shape
        (8,)
        """
        if pooling is not None:
            check_name(pooling, POOLINGS, "pooling")
        directory = open_directory(path, engine, dtype, attention, remat, batch_invariant)
        if directory.layout.embedder is None and pooling is None:
            raise BertJaxError(
                f'{path} is not an embedder; Embedder.load(DIR, pooling="mean") takes the mean of its hidden states'
            )
        usual = directory.layout.embedder or EmbedderSettings()
        if pooling is not None:  # in the layout, so that `save` writes an embedder with this pooling
            layout = directory.layout.embedding_with(replace(usual, pooling=pooling))
            directory = replace(directory, layout=layout)
        model = cls.from_directory(directory, tokenizer)
        if model.embedder != usual:
            model.directory = None
        return model

    @overload
    def encode(
        self, inputs: TextOrPair | Texts, prompt_name: str | None = ..., prompt: str | None = ...,
        **settings: Unpack[EncodeSettings],
    ) -> Vectors: ...  # fmt: skip

    @overload
    def encode(
        self, inputs: TextStream, prompt_name: str | None = ..., prompt: str | None = ...,
        **settings: Unpack[EncodeSettings],
    ) -> Iterator[Vectors]: ...  # fmt: skip

    def encode(
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, batch_size: int | None = None,
        show_progress_bar: bool | None = None, output_value: str = "sentence_embedding", precision: str = "float32",
        convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: str | None = None,
        normalize_embeddings: bool = False, truncate_dim: int | None = None, *, pooling: str | None = None,
        long_texts: str = "truncate",
    ) -> Any:  # fmt: skip
        """Return a vector [D] for a text, an array [N, D] for a list, or an iterator of vectors for any other iterable.

        `prompt_name` is one of the model's prompts, `prompt` the text to put before each text. `batch_size` limits the
        texts that are read at a time; by default batches have even lengths. `show_progress_bar` shows how many texts
        are done. `output_value`, `precision`, `convert_to_numpy`, `convert_to_tensor` and `device` are arguments of
        sentence-transformers that have one value here. `pooling` replaces that of the model. `normalize_embeddings`
        scales vectors to length 1 even if the model does not. `truncate_dim` keeps only the first dimensions, for
        models that were trained for this; they have length 1 only with `normalize_embeddings`. Long texts are
        truncated, with a warning; with `long_texts="windows"` they are read in windows, and the vectors are averaged,
        weighted by the tokens of each window.

        >>> model.encode("the cat").shape, model.encode(["the cat", "the mat"]).shape
        ((8,), (2, 8))
        """
        check_only(
            output_value=output_value, precision=precision, convert_to_numpy=convert_to_numpy,
            convert_to_tensor=convert_to_tensor, device=device,
        )  # fmt: skip
        check_flag(normalize_embeddings, "normalize_embeddings")
        check_batch_options(batch_size, show_progress_bar)
        width = self.layout.vector_size
        if truncate_dim is not None:
            check_number(truncate_dim, "truncate_dim", is_whole=True, allowed=Range(1, width))
        embed_chunk = EmbeddingPipeline(
            self, prompt=prompt_name if prompt is None else PromptText(prompt), pooling=pooling,
            normalize=normalize_embeddings or None, long_texts=long_texts,
            dimensions=truncate_dim if normalize_embeddings else None,
        )  # fmt: skip
        return map_texts(
            list(inputs) if isinstance(inputs, tuple) else inputs,
            lambda chunk: embed_chunk(chunk)[:, :truncate_dim],
            vector_stacker(truncate_dim or width),
            batch_size or self.texts_at_once,
            show_progress_bar,
        )

    @overload
    def encode_query(
        self, inputs: TextOrPair | Texts, prompt_name: str | None = ..., prompt: str | None = ...,
        **settings: Unpack[EncodeSettings],
    ) -> Vectors: ...  # fmt: skip

    @overload
    def encode_query(
        self, inputs: TextStream, prompt_name: str | None = ..., prompt: str | None = ...,
        **settings: Unpack[EncodeSettings],
    ) -> Iterator[Vectors]: ...  # fmt: skip

    def encode_query(
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None,
        **settings: Unpack[EncodeSettings],
    ) -> Any:  # fmt: skip
        """Return vectors as `encode` does, by default with the model's prompt for queries, if it has one.

        >>> model.encode_query("the cat").shape
        (8,)
        """
        return self.encode(
            inputs, self._choose_prompt(prompt_name, prompt, QUERY_PROMPTS), prompt, **settings
        )

    @overload
    def encode_document(
        self, inputs: TextOrPair | Texts, prompt_name: str | None = ..., prompt: str | None = ...,
        **settings: Unpack[EncodeSettings],
    ) -> Vectors: ...  # fmt: skip

    @overload
    def encode_document(
        self, inputs: TextStream, prompt_name: str | None = ..., prompt: str | None = ...,
        **settings: Unpack[EncodeSettings],
    ) -> Iterator[Vectors]: ...  # fmt: skip

    def encode_document(
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None,
        **settings: Unpack[EncodeSettings],
    ) -> Any:  # fmt: skip
        """Return vectors as `encode` does, by default with the model's prompt for documents, if it has one.

        >>> model.encode_document(["the cat", "the mat"]).shape
        (2, 8)
        """
        return self.encode(
            inputs, self._choose_prompt(prompt_name, prompt, DOCUMENT_PROMPTS), prompt, **settings
        )

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Return the cosine of each vector or text on one side with each one on the other, [N1, N2].

        A side is a text, a list of texts, a vector [D], an array [N, D] or a list of vectors, or an iterator of either.

        >>> model.similarity(["the cat", "the mat"], model.encode(["the cat"])).round(3).tolist()[0]
        [1.0]
        """
        first = self._unit_vectors(embeddings1, "embeddings1")
        second = self._unit_vectors(embeddings2, "embeddings2")
        if first.shape[1] != second.shape[1]:
            raise BertJaxError(
                f"embeddings1 has {first.shape[1]} dimensions and embeddings2 has {second.shape[1]}; compare vectors "
                "of one size"
            )
        return first @ second.T

    @overload
    def zero_shot(
        self, texts: str, labels: ZeroShotLabels, *, hypothesis_template: str = ..., temperature: float = ...
    ) -> list[Label]: ...

    @overload
    def zero_shot(
        self,
        texts: Texts,
        labels: ZeroShotLabels,
        *,
        hypothesis_template: str = ...,
        temperature: float = ...,
    ) -> list[list[Label]]: ...

    @overload
    def zero_shot(
        self,
        texts: TextStream,
        labels: ZeroShotLabels,
        *,
        hypothesis_template: str = ...,
        temperature: float = ...,
    ) -> Iterator[list[Label]]: ...

    def zero_shot(
        self,
        texts: Any,
        labels: Any,
        *,
        hypothesis_template: str = LABEL_ALONE,
        temperature: float = TEMPERATURE,
    ) -> Any:
        """Return the labels by how similar each text is to them, best first, each with its probability.

        A mapping has a description for each label, with which texts are compared instead of its name; with a
        `hypothesis_template`, texts are compared with this sentence about each label. Probabilities are the softmax of
        the cosines over `temperature`.

        >>> [label.label for label in model.zero_shot("the cat", ["the mat", "the cat"])]
        ['the cat', 'the mat']
        """
        candidates = CandidateLabels.read(labels, hypothesis_template)
        compute_outcomes = SimilarityPipeline(self, candidates, temperature=temperature)
        return map_texts(texts, lambda chunk: [candidates.rank(raw) for raw, _ in compute_outcomes(chunk)])

    def _unit_vectors(self, side: Any, name: str) -> np.ndarray:
        side = list(side) if isinstance(side, Iterator) else side
        with np.errstate(over="ignore"):
            vectors = find_vectors(side, name)
            if vectors is None:
                texts = [side] if isinstance(side, str) else list(ordered_texts(side))
                embed = EmbeddingPipeline(self, truncated=TruncationWarner(self.max_seq_length))
                vectors = map_texts(texts, embed, vector_stacker(self.layout.vector_size))
            lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise BertJaxError(
                f"{name} has a vector that is not finite in float32; leave it out, or scale it"
            )
        return vectors / np.maximum(lengths, 1e-12)
