"""What the fine-tunings share: a head on the encoder of a model directory, and examples in epochs."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import jax
import jax.numpy as jnp

from bert_jax.data.examples.arrange import ACCELERATOR_PROGRAM, PROGRAM, BatchConfig, Piece
from bert_jax.data.examples.columns import known_labels
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.hub import sentence_transformers
from bert_jax.losses import Loss
from bert_jax.models.heads import HEADS
from bert_jax.predictions.calibration import NONE
from bert_jax.predictions.kind import Kind, Windows, kind_of
from bert_jax.predictions.probe import MOST
from bert_jax.tasks.finetune_config import ExamplesConfig, FinetuneConfig
from bert_jax.tasks.parts import say, split_parts
from bert_jax.tasks.probe import sampled, with_probe
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import Reading, Truncated
from bert_jax.train.task import Data, Results, Task

MOST_BEFORE_STEPS = 10_000  # texts or windows that a probe is fitted to, if it only begins a fine-tuning


@dataclass(frozen=True)
class Finetuning(Task):
    """A head on the encoder that learns predictions of a kind."""

    kind: Kind
    smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()
    probe: bool = field(default=False, compare=False)  # the head begins as one

    @property
    def best(self) -> str:
        return self.kind.best

    @property
    def head(self) -> str:
        return self.layout.heads[-1]

    def begun(self, params: dict, data: Data, steps: int) -> dict:
        link = self.kind.link
        if not self.probe or link is None:
            return params
        pieces = sampled(cast(Epochs, data).train, MOST_BEFORE_STEPS if steps else MOST)
        return with_probe(params, self.layout, data.tokenizer, pieces, link, self.class_weights)

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        weight = batch["weight"]
        if self.class_weights:
            weight = weight * jnp.asarray(self.class_weights)[batch["labels"]]
        loss = self.kind.loss(outputs[self.head], batch, weight, self.smoothing)
        return {f"{self.kind.heads[0]}_loss": loss}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return self.kind.scores(outputs[self.head], batch)

    def predictions(self, outputs: dict, batch: dict):
        return outputs[self.head]


@dataclass(frozen=True)
class Judge:
    """Logits of the held-out pieces, None for those that were not computed -> metrics of the whole examples."""

    kind: Kind
    examples: Sequence[Example]
    windows: Sequence[Windows]

    def raws(self, logits: list) -> list:
        """What the logits say of each example; None where not all of its pieces have some."""
        raws, pieces = [], iter(logits)
        for example, windows in zip(self.examples, self.windows, strict=True):
            parts = [next(pieces) for _ in windows.encodings]
            whole = all(part is not None for part in parts)
            raws.append(self.kind.raw(example.text, windows, parts) if whole else None)
        return raws

    def __call__(self, logits: list) -> dict[str, float]:
        judged = [
            (raw, e) for raw, e in zip(self.raws(logits), self.examples, strict=True) if raw is not None
        ]
        if not judged:
            return {}
        predicted = [self.kind.predicted(raw, NONE) for raw, _ in judged]
        return self.kind.sums(predicted, [self.kind.truth(example) for _, example in judged]).scores


C = TypeVar("C", bound=FinetuneConfig)


def open_data(
    config: C, labels: Sequence[str] = (), smoothing: float = 0.0, balanced: bool = False
) -> tuple[Finetuning, Epochs, C]:
    """The task, its data and the whole config. `labels` in the order of the model's outputs, (): those of the data;
    with `balanced` each class weighs the same in all."""
    data = config.data
    parts = split_parts(config)
    everything = [*parts.train, *parts.heldout] if data.fold >= 0 else parts.train
    kind = config.predicts.learn(everything, labels or known_labels(data.train, data.columns))
    if advice := kind.advice(data.columns):
        say(advice)
    kind.check([*parts.heldout, *parts.calibration])
    tokenizer = open_tokenizer(hub.existing(config.init))
    weights = class_weights(kind, parts.train) if balanced else ()
    results = Results(parts.train, parts.heldout, parts.calibration, data.long, config.report)
    data = dataclasses.replace(data, folds=parts.folds)
    config = dataclasses.replace(config, data=data)
    layout = layout_with_head(config, kind)
    task = Finetuning(layout, kind, smoothing, weights, config.head == "probe", results=results)
    windows = [
        read(kind, tokenizer, data, examples, what)
        for examples, what in ((parts.train, "training"), (parts.heldout, "validation"))
    ]
    train, heldout = (
        pieces_of(kind, examples, texts)
        for examples, texts in zip((parts.train, parts.heldout), windows, strict=True)
    )
    config = config.resolved(len(train), "" if parts.folds else task.best)
    every_length = sorted(map(len, [*train, *heldout] if data.fold >= 0 else train))
    judge = Judge(kind, parts.heldout, windows[1])
    if data.fold >= 0:  # the fold is predicted when the run has ended
        heldout, judge = [], Judge(kind, [], [])
    mesh, encoder, backend = config.mesh, task.layout.config, jax.default_backend()
    batches = BatchConfig(
        data.rows, data.batch, max(config.steps, 1), config.seed, encoder.hidden_size, encoder.layers, data.max_length,
        # A TPU's lanes, and the attention kernel there, take lengths of 128.
        multiple=128 if backend == "tpu" else 8,
        shards=jax.device_count() // mesh.tensor * mesh.accumulate,
        program=PROGRAM.get(backend, ACCELERATOR_PROGRAM),
        lengths=tuple(every_length) if parts.folds else (),
    )  # fmt: skip
    each_token = HEADS[task.head].each_token
    epochs = Epochs(train, heldout, kind.targets, tokenizer, batches, judge, each_token)
    lengths = sorted(set(epochs.arrangement.lengths))
    beside = f"{len(heldout):,} held out, {len(parts.calibration):,} for calibration"
    if parts.folds:
        beside = f"{parts.folds} folds" if data.fold < 0 else f"without fold {data.fold + 1} of {parts.folds}"
    say(
        f"{len(train):,} examples or windows to train on, {beside}; {data.batch} examples a step, in {epochs.batch} "
        f"rows of {', '.join(map(str, lengths))} tokens, {epochs.padding():.1%} of them padding"
    )
    return task, epochs, config


def layout_with_head(config: FinetuneConfig, kind: Kind) -> hub.Layout:
    """The encoder of `config.init` under the head of the predictions, with their keys of config.json."""
    computed = {name: getattr(config.model, name) for name in ("dtype", "attention", "remat")}
    source, _ = hub.survey(config.init, **computed)
    layout = source.with_head(head_of(config, kind, source.heads), kind.labels)
    rates = {name: getattr(config.model, name) for name in ("dropout", "attention_dropout", "head_dropout")}
    rates[HEADS[layout.heads[-1]].dropout] = rates["head_dropout"]
    encoder = layout.config.replace(**{name: rate for name, rate in rates.items() if rate >= 0})
    if encoder.max_positions < config.data.max_length:
        raise BertJaxError(
            f"data.max_length is {config.data.max_length} and {config.init} reads {encoder.max_positions} tokens; "
            f"set --config.data.max_length={encoder.max_positions}"
        )
    layout = dataclasses.replace(layout, config=encoder, published=layout.published | kind.published)
    kind_of(layout)  # which opens the finished model; a kind that it does not know is refused before the run
    return layout


def head_of(config: FinetuneConfig, kind: Kind, heads: Sequence[str]) -> str:
    """The kind's head that reads what `model.pooling` names: by default what an embedder pools, or what one of the
    `heads` of the directory reads."""
    pooling: str = config.model.pooling
    if pooling == "auto":
        embedder = sentence_transformers.read(hub.existing(config.init))
        if embedder is None:
            return next((head for head in heads if head in kind.heads), kind.heads[0])
        pooling = embedder.pooling
    return next((head for head in kind.heads if HEADS[head].reads == pooling), kind.heads[0])


def class_weights(kind: Kind, examples: Sequence[Example]) -> tuple[float, ...]:
    counts = Counter(kind.truth(example) for example in examples)
    return tuple(len(examples) / (len(kind.labels) * max(counts[label], 1)) for label in kind.labels)


def read(
    kind: Kind, tokenizer: Tokenizer, data: ExamplesConfig, examples: Sequence[Example], what: str
) -> list[Windows]:
    """Each text whole, truncated or in windows."""
    reading = Reading(data.max_length, data.long, data.overlap)
    windows = kind.windows(tokenizer, [example.text for example in examples], reading)
    truncated = Truncated(data.max_length)
    truncated.count(text.encodings[0] for text in windows)
    advice = "--config.data.long=windows reads all of them, and data.max_length may be more"
    if notice := truncated.notice(advice, f"{what} examples"):
        say(notice)
    return windows


def pieces_of(kind: Kind, examples: Sequence[Example], windows: Sequence[Windows]) -> list[Piece]:
    return [
        Piece(encoding, i, values)
        for i, (example, text) in enumerate(zip(examples, windows, strict=True))
        for encoding, values in zip(text.encodings, kind.values(example, text), strict=True)
    ]
