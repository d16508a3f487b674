"""The base of the models that `bert_jax.load` returns: an encoder with its parameters and tokenizer."""

import tempfile
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self, overload

import numpy as np

from bert_jax.core import hashes
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.hub.layout import Layout
from bert_jax.hub.layout_warnings import layout_warnings
from bert_jax.hub.local_directory import check_path
from bert_jax.hub.model_directory import ModelDirectory, atomic_model_directory
from bert_jax.hub.repository import create_repository, push_directory
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference import warm_up
from bert_jax.inference.computations import (
    POOLER,
    AttentionWeights,
    Computation,
    HiddenStates,
    LayerStates,
    PooledStates,
)
from bert_jax.inference.engine import Engine, open_directory, open_engine
from bert_jax.inference.runner import TRAINED_BY, ModelInputs, Runner, TextPipeline
from bert_jax.inference.streaming import TextOrPair, Texts, TextStream, Vectors, map_texts, vector_stacker
from bert_jax.models.pooling_weights import POOLINGS
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions import out_of_scope as scopes
from bert_jax.predictions import training_origin
from bert_jax.predictions.kinds.answers import Answers
from bert_jax.predictions.kinds.tags import Tags
from bert_jax.predictions.whole_text_kind import WholeTextKind
from bert_jax.text.encoding import Encoding
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

ALL = "all"
Layers = int | Sequence[int] | str  # the number of a layer, several, or ALL
TEXTS_AT_ONCE = 16  # texts computed at a time: the outputs of several layers take much memory
# The class that opens a model with one of these heads, unless it is an embedder or a cross-encoder.
CLASS_HEADS: dict[str, tuple[str, ...]] = {
    "QuestionAnswerer": Answers.heads,
    "Tagger": Tags.heads,
    "Classifier": WholeTextKind.heads,
    "MaskedLM": ("mlm",),
}


def class_name_for(layout: Layout) -> str:
    """Return the name of the class that `bert_jax.load` returns for a model."""
    if layout.embedder:
        return "M3Embedder" if layout.m3 else "StaticEmbedder" if layout.is_static else "Embedder"
    if layout.sparse:
        return "SparseEmbedder"
    if layout.multi_vector:
        return "MultiVectorEmbedder"
    if layout.is_cross_encoder:
        return "Reranker"
    return next(
        (name for name, heads in CLASS_HEADS.items() if not set(heads).isdisjoint(layout.heads)), "Encoder"
    )


def restore_model(
    model_class: "type[Encoder]",
    files: dict[str, bytes],
    computed: dict,
    embedder: EmbedderSettings,
    tokenizer: bool,
    directory: Path | None,
) -> "Encoder":
    """Return a model from the files of its directory."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, content in files.items():
            path = Path(scratch) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        model = model_class.from_directory(open_directory(f"{scratch}/model", **computed), tokenizer)
    model.embedder, model.directory = embedder, directory
    return model


class Encoder(Runner):
    """An encoder with its heads, parameters and tokenizer.

    From JAX code, call `model.module.apply({"params": model.params}, batch)`. The methods take one text, a list or any
    other iterable, and return one result, a list or an array, or an iterator. They read an iterable only as far as they
    need. A tuple is a pair of texts; only `encode` takes it as a list of texts, as sentence-transformers does.
    """

    vectors: ClassVar[str] = "embedder"  # the field of the layout with the vectors that the class computes
    # That it was loaded from; None if it is not what that holds, or was never saved.
    directory: Path | None = None

    @classmethod
    def accepts(cls, layout: Layout) -> bool:
        """Whether the class can open a model of this layout."""
        heads = CLASS_HEADS.get(cls.__name__)
        return heads is None or not set(heads).isdisjoint(layout.heads)

    @classmethod
    def load(
        cls,
        path,
        *,
        dtype: str = "float32",
        attention: str = "auto",
        remat: str = "none",
        tokenizer: bool = True,
        engine: str = "auto",
        batch_invariant: bool = False,
    ) -> Self:
        """Open a Hugging Face model directory of any family in hub/families.

        `dtype`, `attention` and `remat` say how to compute, as in the config of a run. With `tokenizer=False` the
        directory needs no tokenizer. For `engine` and `batch_invariant` see `bert_jax.load`.

        >>> bert_jax.Encoder.load(DIR).encode("the cat").shape
        (8,)
        """
        directory = open_directory(path, engine, dtype, attention, remat, batch_invariant)
        if not cls.accepts(directory.layout):
            name, advice = class_name_for(directory.layout), ""
            for head in CLASS_HEADS.get(cls.__name__, ())[:1]:
                config = TRAINED_BY.get(head, head)
                advice = f", or train another from it: bert-jax train --config {config} --config.init={path}"
            raise BertJaxError(
                f"{path} is not opened by bert_jax.{cls.__name__} but by bert_jax.{name}; call {name}.load, "
                f"bert_jax.load for any model{advice}"
            )
        return cls.from_directory(directory, tokenizer)

    @classmethod
    def from_directory(
        cls, directory: ModelDirectory, tokenizer: bool = True, engine: Engine | None = None
    ) -> Self:
        """Return the model of an open directory, by default with an engine of its own."""
        check_flag(tokenizer, "tokenizer")
        if tokenizer:
            for note in layout_warnings(directory):
                warn_caller(note)
        layout, path = directory.layout.m3_with(cls.vectors), directory.path
        model = cls(
            layout,
            engine or open_engine(directory),
            directory.tokenizer if tokenizer else None,
            calibrations.read_calibration(path, layout.labels),
            training_origin.read_origin(path),
            scopes.read_detector(path, layout.config.hidden_size),
        )
        model.directory = path.resolve()
        return model

    def __repr__(self) -> str:
        c, heads = self.config, ", ".join(self.layout.heads) or "none"
        shape = f"{c.num_hidden_layers} layers of {c.hidden_size}, heads: {heads}"
        computed = f"computed in {self.engine.dtype} by {self.engine.name}"
        return f"<{type(self).__name__} of {self.layout.family.model_type}: {shape}, {computed}>"

    @overload
    def encode(
        self, inputs: TextOrPair | Texts, *, pooling: str | None = ..., normalize_embeddings: bool = ...
    ) -> Vectors: ...

    @overload
    def encode(
        self, inputs: TextStream, *, pooling: str | None = ..., normalize_embeddings: bool = ...
    ) -> Iterator[Vectors]: ...

    def encode(self, inputs: Any, *, pooling: str | None = None, normalize_embeddings: bool = False) -> Any:
        """Return a vector [D] for a text, or an array [N, D] for a list: by default the mean of the hidden states.

        `pooling="cls"` takes the [CLS] state, "pooler" the output of BERT's pooler. `normalize_embeddings` scales
        vectors to length 1.

        >>> model.encode(["the cat", "the mat"], pooling="cls").shape
        (2, 8)
        """
        check_flag(normalize_embeddings, "normalize_embeddings")
        pooling = "mean" if pooling is None else pooling
        check_name(pooling, (*POOLINGS, POOLER), "pooling")
        if pooling == POOLER and not self.layout.pooler:
            raise BertJaxError('this model has no pooler; use pooling="mean" or "cls"')
        wanted = PooledStates(pooling, normalize_embeddings)
        gather = vector_stacker(self.config.hidden_size)
        inputs = list(inputs) if isinstance(inputs, tuple) else inputs
        return self.map_encodings(inputs, lambda encodings: self.run(encodings, wanted), gather)

    @overload
    def tokenize(self, texts: TextOrPair) -> Encoding: ...

    @overload
    def tokenize(self, texts: Texts) -> list[Encoding]: ...

    @overload
    def tokenize(self, texts: TextStream) -> Iterator[Encoding]: ...

    def tokenize(self, texts: Any) -> Any:
        """Return the `Encoding` of each text or pair, truncated to the model's length with a warning.

        >>> model.tokenizer.tokens(model.tokenize("the cats").input_ids)
        ['[CLS]', 'the', 'cat', '##s', '[SEP]']
        """
        return self.map_encodings(texts, iter)

    @overload
    def hidden_states(self, texts: TextOrPair, layers: Layers | None = ...) -> Vectors: ...

    @overload
    def hidden_states(self, texts: Texts, layers: Layers | None = ...) -> list[Vectors]: ...

    @overload
    def hidden_states(self, texts: TextStream, layers: Layers | None = ...) -> Iterator[Vectors]: ...

    def hidden_states(self, texts: Any, layers: Layers | None = None) -> Any:
        """Return the hidden states [length, D] of each text or pair, special tokens included.

        They are of the last layer, or of the one that `layers` names. For several `layers`, or "all", the shape is
        [layers, length, D]. Layer 0 is the embeddings and -1 the last layer, as in `transformers`.

        >>> [states.shape for states in model.hidden_states(["the cat", ("the cat", "the mat")])]
        [(4, 8), (7, 8)]
        """
        at_once = 0 if layers is None else TEXTS_AT_ONCE
        return map_texts(texts, StatesPipeline(self, layers), at_once=at_once)

    @overload
    def attentions(self, texts: TextOrPair, layers: Layers = ...) -> Vectors: ...

    @overload
    def attentions(self, texts: Texts, layers: Layers = ...) -> list[Vectors]: ...

    @overload
    def attentions(self, texts: TextStream, layers: Layers = ...) -> Iterator[Vectors]: ...

    def attentions(self, texts: Any, layers: Layers = ALL) -> Any:
        """Return the attention weights [layers, heads, length, length] of each text or pair.

        Rows are the tokens that attend, columns the tokens attended to. If `layers` is one number, the shape is
        [heads, length, length]. Layer 0 is the first layer and -1 the last, as in `transformers`.

        >>> model.attentions("the cat", layers=-1).sum(-1).round(3).tolist()[0]
        [1.0, 1.0, 1.0, 1.0]
        """
        chosen, selection = parse_layers(layers, self.config.num_hidden_layers)

        def read(encodings: list[Encoding]) -> Iterator[Vectors]:
            outputs = self.run(encodings, AttentionWeights(chosen))
            for weights, encoding in zip(outputs, encodings, strict=True):
                length = len(encoding.input_ids)
                yield weights[selection, :, :length, :length]

        return self.map_encodings(texts, read, at_once=TEXTS_AT_ONCE)

    def warm_up(self, lengths: Sequence[int] | None = None, *, texts: int = 1) -> None:
        """Compile the programs that predictions need for texts of these `lengths` in tokens, so that no text waits.

        By default, compile for all lengths that the model reads. For a model without a prediction head, compile the
        programs of vectors and of `fill_mask` (one mask, default `top_k`). `in_distribution_p_value` is not included:
        it compiles at its first text. `texts` is the largest number of texts in one call.

        >>> model.warm_up([4, 7])
        """
        warm_up.compile_programs(self, lengths, texts)

    def with_params(self, params: dict[str, Any]) -> Self:
        """Return the model with other parameters, such as from your own training loop.

        It has no calibration, origin or scope, because those belong to the old parameters.

        >>> model.with_params(model.params)
        <MaskedLM of bert: 2 layers of 8, heads: mlm, nsp, computed in float32 by jax>
        """
        from bert_jax.inference.engines.jax import JaxEngine

        engine = JaxEngine(self.config, params)
        if self.engine.shapes.fixed:
            engine.shapes = engine.shapes.batch_invariant()
        return type(self)(self.layout, engine, self._tokenizer)

    @property
    def computed(self) -> dict[str, Any]:
        """How the model is computed, as arguments of `load`."""
        c = self.config
        return {
            "engine": self.engine.name,
            "dtype": self.engine.dtype,
            "attention": c.attention,
            "remat": c.remat,
            "batch_invariant": self.engine.shapes.fixed > 0,
        }

    def __reduce__(self):
        """Pickle and copy the model as the files of its directory, with how it is computed."""
        with tempfile.TemporaryDirectory() as scratch:
            self.save(f"{scratch}/model")
            files = {
                str(path.relative_to(scratch)): path.read_bytes()
                for path in sorted(Path(scratch).rglob("*"))
                if path.is_file()
            }
        kept = self.embedder, self._tokenizer is not None, self.directory
        return restore_model, (type(self), files, self.computed, *kept)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a Hugging Face directory that `transformers` and `load` can open.

        The directory of an embedder can also be opened by `sentence-transformers`.

        >>> model.save(DIR / "copy")
        """
        with atomic_model_directory(check_path(path)) as new:
            self.engine.write_model(new, self.layout, self._tokenizer)
            calibrations.save_calibration(new, self.calibration)
            training_origin.save_origin(new, self.origin)
            scopes.save_detector(new, self.scope)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        commit_message: str | None = None,
        revision: str | None = None,
    ) -> str:
        """Push the model to a repository of the Hugging Face hub, and return its address.

        The arguments are those of transformers: a new repository is public, unless `private=True` or its organization
        decides otherwise. The model of a run is pushed as its directory, with its card; others as `save` writes them.
        """
        if private is not None:
            check_flag(private, "private")
        with tempfile.TemporaryDirectory() as scratch:
            directory = self.directory
            if directory is None or not hashes.is_whole(directory):
                directory = Path(scratch, "model")
                self.save(directory)
            repository = create_repository(repo_id, private)
            return push_directory(directory, repository, commit_message=commit_message, revision=revision)


class StatesPipeline(TextPipeline[np.ndarray]):
    """Computes the hidden states of a text's tokens, [L, D], or [layers, L, D] of several `layers`."""

    def __init__(
        self, model: Runner, layers: Layers | None = None, truncated: TruncationCounter | None = None
    ):
        wanted: Computation = HiddenStates()
        self.selection: int | slice = slice(None)
        if layers is not None:
            chosen, selection = parse_layers(layers, model.config.num_hidden_layers + 1)
            wanted, self.selection = LayerStates(chosen), selection
        self.of_layers = layers is not None
        super().__init__(model, wanted, truncated or TruncationWarner(model.config.max_position_embeddings))

    def preprocess(self, texts: Sequence) -> ModelInputs:
        encodings = self.model.tokenizer.encode(texts, max_length=self.truncated.max_length)
        return ModelInputs(texts, encodings, encodings)

    def postprocess(self, inputs: ModelInputs, outputs: list) -> Iterator[np.ndarray]:
        for states, encoding in zip(outputs, inputs.rows, strict=True):
            length = len(encoding.input_ids)
            yield states[self.selection, :length] if self.of_layers else states[:length]


def parse_layers(layers, count: int) -> tuple[tuple[int, ...], int | slice]:
    """Return the layers, as numbers from 0, and the index into them: 0 for a single layer, a full slice for several."""
    if isinstance(layers, str):
        if layers != ALL:
            raise BertJaxError(f'layers must be numbers or "{ALL}", not {layers!r:.40}')
        return tuple(range(count)), slice(None)
    several = isinstance(layers, Sequence | np.ndarray | range)
    numbers = list(layers) if several else [layers]
    for number in numbers:
        check_number(number, "layers", is_whole=True, allowed=Range(-count, count - 1))
    if not numbers:
        raise BertJaxError(f'layers is empty; give numbers from 0 to {count - 1}, or "{ALL}"')
    return tuple(int(number) % count for number in numbers), slice(None) if several else 0
