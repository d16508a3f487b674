"""A model with its engine and tokenizer, the code that runs it on texts of any lengths, and what it does with texts in
three steps: encode them, compute, and read the results from the outputs."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import Progress
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import EmbedderSettings, TextSettings
from bert_jax.hub.weights import is_finite
from bert_jax.inference.batching import make_batches, split_outputs
from bert_jax.inference.computations import Computation, HeadLogits
from bert_jax.inference.engine import Engine, shapes_for
from bert_jax.inference.streaming import map_texts
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.heads import HEADS
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.kind import Kind, require_kind
from bert_jax.predictions.out_of_scope import NO_DETECTOR as NO_SCOPE
from bert_jax.predictions.out_of_scope import OutOfScopeDetector
from bert_jax.predictions.training_origin import UNKNOWN_ORIGIN, TrainingOrigin
from bert_jax.text.encoding import Encoding
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

if TYPE_CHECKING:
    from bert_jax.models.bert import Bert

Result = TypeVar("Result")
TRAINED_BY = {"mlm": "pretrain"}  # head -> config that trains it, if their names differ


class Runner:
    def __init__(
        self,
        layout: Layout,
        engine: Engine,
        tokenizer: Tokenizer | None,
        calibration: Calibration = UNCALIBRATED,
        origin: TrainingOrigin = UNKNOWN_ORIGIN,
        scope: OutOfScopeDetector = NO_SCOPE,
    ):
        self.layout, self.engine, self.process = layout, engine, os.getpid()
        self._tokenizer = tokenizer
        self.embedder = layout.embedder or EmbedderSettings()
        self.calibration, self.origin, self.scope = calibration, origin, scope

    @property
    def text_settings(self) -> TextSettings:
        """How it reads texts to turn them into vectors."""
        return self.layout.text_settings or self.embedder

    @property
    def params(self) -> dict:
        """The parameters of `module`. Keep them in a variable: on a CPU each access stacks the layers again."""
        return self.engine.params

    @property
    def config(self) -> EncoderConfig:
        return self.layout.config

    @property
    def module(self) -> "Bert":
        return self.layout.module

    @property
    def labels(self) -> tuple[str, ...]:
        return self.layout.labels

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise BertJaxError("this model was loaded without its tokenizer; load it without tokenizer=False")
        return self._tokenizer

    @property
    def kind(self) -> Kind:
        """The kind of the model's predictions."""
        return require_kind(self.layout)

    def require_head(self, heads: Sequence[str], what: str) -> str:
        """Return the head of the model that is among `heads`; refuse a model without one, naming the first of them."""
        if head := next((head for head in reversed(self.layout.heads) if head in heads), None):
            return head
        has, wanted = ", ".join(self.layout.heads), heads[0]
        class_name = self.layout.family.class_name + HEADS[wanted].architecture
        raise BertJaxError(
            f'{what} needs the head "{wanted}", and this model has {has or "no head, as embedders have none"}; open a '
            f"directory that has it (transformers calls it {class_name}), or train one: bert-jax train --config "
            f"{TRAINED_BY.get(wanted, wanted)} --config.init=DIR"
        )

    def require_kind(self, heads: Sequence[str], what: str) -> Kind:
        """Return the kind of prediction of the model's head that is among `heads`."""
        return require_kind(self.layout, self.require_head(heads, what))

    def encoding_options(self, kind: Kind, long_texts: str = "truncate") -> EncodingOptions:
        """Return how the model reads texts for this kind of prediction."""
        apart = HEADS[self.require_head(kind.heads, kind.name)].compares
        return EncodingOptions(self.config.max_position_embeddings, long_texts, separate_texts=apart)

    def run(
        self,
        encodings: Sequence[Encoding],
        wanted: Computation,
        extra_inputs: dict[str, np.ndarray] | None = None,
        progress: Progress | None = None,
        engine: Engine | None = None,
    ) -> list:
        """Return the outputs of a computation for each encoding, in order.

        `extra_inputs` holds further arrays of the batch, with a row for each encoding; `progress` counts the encodings.
        By default the model's own engine computes.
        """
        return self._run(encodings, wanted, extra_inputs, progress, engine or self.engine)

    def _run(
        self,
        encodings: Sequence[Encoding],
        wanted: Computation,
        extra_inputs: dict[str, np.ndarray] | None,
        progress: Progress | None,
        engine: Engine,
    ) -> list:
        if os.getpid() != self.process:
            raise BertJaxError(
                "this model was loaded before its process forked, and its engine does not work in the fork; load it in "
                'each process, or start processes by multiprocessing.get_context("spawn")'
            )
        keep = getattr(wanted, "keep", lambda output: output)
        outputs: list = [None] * len(encodings)
        ahead: list = []  # the device computes a batch while the host reads the outputs of the one before

        def read_next():
            rows, batch, started = ahead.pop(0)
            read = engine.read(started)
            several = isinstance(read, list | tuple)
            values = read if several else [read]
            if not all(is_finite(value[: len(rows)]) for value in values):
                raise BertJaxError(
                    "the model's outputs for these texts are not finite; its weights are too large for "
                    f"{engine.dtype}"
                )
            parts = zip(*(split_outputs(value, rows, batch) for value in values), strict=True)
            for i, of_one in zip(chain.from_iterable(rows), parts, strict=True):
                outputs[i] = of_one if several else keep(of_one[0])
            if progress:
                progress.advance(sum(map(len, rows)))

        longest, pad = self.config.max_position_embeddings, self.tokenizer.special.pad
        batches = list(make_batches(encodings, longest, pad, shapes_for(engine, wanted), extra_inputs))
        if self.config.type_vocab_size == 1 and any(batch["token_type_ids"].any() for _, batch in batches):
            raise BertJaxError(
                "this model has one token type (type_vocab_size 1), and its tokenizer gives the second text of a pair "
                "another; give single texts"
            )
        with engine.compiling(wanted, [batch for _, batch in batches]):
            for rows, batch in batches:
                ahead.append((rows, batch, engine.start(wanted, batch)))
                if len(ahead) > 1:
                    read_next()
            while ahead:
                read_next()
        return outputs

    def map_encodings(
        self,
        texts,
        read: Callable[[list[Encoding]], Iterable],
        gather: Callable[[list], Any] = list,
        at_once: int = 0,
    ):
        """Return the results of `read` for each list of encodings; long texts are truncated, with a warning."""
        truncated = TruncationWarner(self.config.max_position_embeddings)

        def encode_chunk(chunk):
            encodings = self.tokenizer.encode(chunk, max_length=self.config.max_position_embeddings)
            truncated.count(encodings)
            return read(encodings)

        return map_texts(texts, encode_chunk, gather, at_once)


@dataclass(frozen=True)
class ModelInputs:
    """Texts as a model reads them: rows of tokens, of which a long text may have several."""

    texts: Sequence
    rows: list[Encoding]
    first_rows: list[Encoding]  # the first row of each text, which says whether it was truncated
    parts: Any = None  # what else the pipeline needs to read the results
    # Further arrays of the batch, with a row for each row of tokens.
    extra_inputs: dict[str, np.ndarray] | None = None


class TextPipeline(ABC, Generic[Result]):
    """A function of a list of texts that returns a result for each. Its steps can also be called one by one, so that
    the rows of several callers are computed together."""

    # The shapes of the further arrays of a row, in each of the programs that it may need.
    extra_shapes: tuple[Mapping[str, tuple[int, ...]], ...] = ({},)

    def __init__(self, model: Runner, computation: Computation, truncated: TruncationCounter):
        self.model, self.computation, self.truncated = model, computation, truncated

    @abstractmethod
    def preprocess(self, texts: Sequence) -> ModelInputs: ...

    @abstractmethod
    def postprocess(self, inputs: ModelInputs, outputs: list) -> Iterable[Result]:
        """Return a result for each text; `outputs` has an entry for each row."""

    def __call__(self, texts: Sequence) -> Any:
        inputs = self.preprocess(texts)
        self.truncated.count(inputs.first_rows)
        return self.postprocess(inputs, self.model.run(inputs.rows, self.computation, inputs.extra_inputs))


Part = tuple[TextPipeline, Sequence, Mapping[str, np.ndarray]]  # its rows, and further arrays of the batch


def batch_key(pipeline: TextPipeline) -> tuple:
    """Return what pipelines have in common whose rows one batch may hold."""
    if bank := pipeline.model.engine.bank:
        return id(bank), bank.widen(pipeline.computation)
    return id(pipeline.model), pipeline.computation


def run_together(parts: Sequence[Part]) -> list[list]:
    """Return the outputs of the rows of each part; those with the same `batch_key` share batches."""
    results: list[list] = [[] for _ in parts]
    groups: dict[tuple, list[int]] = {}
    for number, (pipeline, _, _) in enumerate(parts):
        groups.setdefault(batch_key(pipeline), []).append(number)
    for numbers in groups.values():
        pipeline, _, names = parts[numbers[0]]
        rows = [row for number in numbers for row in parts[number][1]]
        extra_inputs = {
            name: np.concatenate([parts[number][2][name] for number in numbers]) for name in names
        }
        model, computation = pipeline.model, pipeline.computation
        if bank := model.engine.bank:
            slots = [np.full(len(parts[n][1]), parts[n][0].model.engine.slot, np.int32) for n in numbers]
            extra_inputs["adapter"] = np.concatenate(slots)
            computation = bank.widen(computation)
        outputs = iter(model.run(rows, computation, extra_inputs, engine=bank))
        for number in numbers:
            own, given, _ = parts[number]
            results[number] = [cut_labels(own.computation, next(outputs)) for _ in given]
    return results


def cut_labels(computation: Computation, outputs: Any) -> Any:
    """Return outputs without the logits of labels that only other adapters in the batch have."""
    if not isinstance(computation, HeadLogits) or not HEADS[computation.head].labels:
        return outputs
    if isinstance(outputs, list | tuple):
        return outputs[0][..., : computation.labels], *outputs[1:]
    return outputs[..., : computation.labels]
