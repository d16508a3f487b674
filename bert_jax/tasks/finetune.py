"""What the fine-tunings share: a config, a head on the encoder of a model directory, and examples in epochs."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self, TypeVar

import jax
import jax.numpy as jnp

from bert_jax.config import NotNegative, Positive, Range, Share, check_ranges
from bert_jax.data.examples.arrange import ACCELERATOR_PROGRAM, PROGRAM, BatchConfig, Piece, RowLayout
from bert_jax.data.examples.columns import Columns, known_labels
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example, Parts
from bert_jax.data.examples.split import split
from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.losses import Loss
from bert_jax.models.heads import HEADS
from bert_jax.predictions.calibration import NONE
from bert_jax.predictions.kind import Kind, Windows, kind_of
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import Reading, Truncated
from bert_jax.train.config import CheckpointConfig, LogConfig, OptimizerConfig, Rate, RunConfig
from bert_jax.train.task import Results, Task

FEWEST = 25  # examples that a calibration is learnt from
MOST_EXAMPLES = 100_000_000  # of all steps together, for their order is held in memory
# A rate of dropout, or -1.
Dropout = Annotated[float, Range(0, 1, below=True, beside=-1)]


@dataclass(frozen=True)
class ExamplesConfig:
    train: str = ""  # a file, or tfds:NAME/CONFIG:SPLIT
    heldout: str = ""  # likewise; "" holds out a share of train, by document
    heldout_share: Share = 0.1
    # Of the documents left to train on, kept to learn how far the model can be trusted; 0: none.
    calibration_share: Annotated[float, Range(0, 1, below=True)] = 0.05
    columns: Columns = field(default_factory=Columns)
    most: NotNegative = 0  # examples of train that are used, from its first; 0: all
    batch: Annotated[int, Range(1, 1 << 20)] = 32  # examples of a step
    max_length: Annotated[int, Range(1, 1 << 20)] = 128  # tokens of an example, or of a window of it
    long: Literal["cut", "windows"] = "cut"  # what is done with longer ones
    overlap: NotNegative = 32  # tokens that neighbouring windows share
    rows: RowLayout = "packed"  # how a step's examples stand in its rows; what is learnt is the same

    def __post_init__(self):
        check_ranges(self, "data.")
        if not self.train:
            raise BertJaxError(
                "config key data.train is missing; give a file, --config.data.train=train.csv, or tfds:NAME:SPLIT"
            )
        if not self.heldout and not 0 < self.heldout_share < 1:
            raise BertJaxError(
                f"data.heldout_share must be between 0 and 1, not {self.heldout_share}; or name a file, data.heldout"
            )


@dataclass(frozen=True)
class Computing:
    """How the model of `init` computes; -1 is the directory's own."""

    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    attention: str = "auto"
    remat: Literal["none", "dots", "full"] = "none"
    dropout: Dropout = -1.0
    attention_dropout: Dropout = -1.0
    head_dropout: Dropout = -1.0

    def __post_init__(self):
        check_ranges(self, "model.")


# The published grid: 2e-5 to 5e-5, 16 or 32 examples, 2 to 4 epochs.
@dataclass(frozen=True)
class GentleOptimizer(OptimizerConfig):
    rate: Rate = 3e-5
    warmup: NotNegative = 0
    warmup_share: Share = 0.1


@dataclass(frozen=True)
class EpochLog(LogConfig):
    every: Positive = 20
    evaluate_every: NotNegative = 0  # steps; 0: once an epoch


@dataclass(frozen=True)
class EpochCheckpoints(CheckpointConfig):
    every: NotNegative = 0  # steps; 0: whenever what is held out was measured
    keep: Positive = 1
    best: str = ""  # "": the task's own


@dataclass(frozen=True)
class FinetuneConfig(RunConfig, ABC):
    steps: int = 0  # 0: as many as the epochs take
    epochs: Annotated[float, Range(0, 1e6, above=True)] = 3.0
    first_step: int = 0
    report: bool = True  # writes WORKDIR/report when the run has ended
    optimizer: GentleOptimizer = field(default_factory=GentleOptimizer)
    log: EpochLog = field(default_factory=EpochLog)
    checkpoints: EpochCheckpoints = field(default_factory=EpochCheckpoints)
    model: Computing = field(default_factory=Computing)
    data: ExamplesConfig = field(default_factory=ExamplesConfig)

    def __post_init__(self):
        if not self.init:
            raise BertJaxError("config key init is missing; name a model directory, --config.init=DIR")
        check_ranges(self)
        if self.steps and self.log.evaluate_every and self.checkpoints.every:  # resolved
            super().__post_init__()

    @property
    @abstractmethod
    def predicts(self) -> type[Kind]:
        """The kind of its predictions."""

    def resolved(self, examples: int, best: str) -> Self:
        """With what is left to the data."""
        epoch = math.ceil(examples / self.data.batch)
        steps = self.steps or math.ceil(examples * self.epochs / self.data.batch)
        if steps * self.data.batch > MOST_EXAMPLES:
            raise BertJaxError(
                f"{steps:,} steps of data.batch={self.data.batch} are more than {MOST_EXAMPLES:,} examples; set fewer "
                "--config.epochs, or fewer --config.steps"
            )
        evaluate_every = self.log.evaluate_every or epoch
        checkpoints = dataclasses.replace(
            self.checkpoints,
            every=self.checkpoints.every or evaluate_every,
            best=self.checkpoints.best or best,
        )
        return dataclasses.replace(
            self,
            steps=steps,
            log=dataclasses.replace(self.log, evaluate_every=evaluate_every),
            checkpoints=checkpoints,
        )


@dataclass(frozen=True)
class Finetuning(Task):
    """A head on the encoder that learns predictions of a kind."""

    kind: Kind
    smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()

    @property
    def best(self) -> str:
        return self.kind.best

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        weight = batch["weight"]
        if self.class_weights:
            weight = weight * jnp.asarray(self.class_weights)[batch["labels"]]
        head = self.kind.head
        return {f"{head}_loss": self.kind.loss(outputs[head], batch, weight, self.smoothing)}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return self.kind.scores(outputs[self.kind.head], batch)

    def predictions(self, outputs: dict, batch: dict):
        return outputs[self.kind.head]


@dataclass(frozen=True)
class Judge:
    """Logits of the held-out pieces, None for those that were not computed -> metrics of the whole examples."""

    kind: Kind
    examples: Sequence[Example]
    windows: Sequence[Windows]

    def __call__(self, logits: list) -> dict[str, float]:
        predicted, truth, pieces = [], [], iter(logits)
        for example, windows in zip(self.examples, self.windows, strict=True):
            parts = [next(pieces) for _ in windows.encodings]
            if all(part is not None for part in parts):
                raw = self.kind.raw(example.text, windows, parts)
                predicted.append(self.kind.predicted(raw, NONE))
                truth.append(self.kind.truth(example))
        return self.kind.sums(predicted, truth).scores if predicted else {}


C = TypeVar("C", bound=FinetuneConfig)


def open_data(
    config: C, labels: Sequence[str] = (), smoothing: float = 0.0, balanced: bool = False
) -> tuple[Finetuning, Epochs, C]:
    """The task, its data and the whole config. `labels` in the order of the model's outputs, (): those of the data;
    with `balanced` each class weighs the same in all."""
    data = config.data
    parts = split_parts(config)
    kind = config.predicts.learn(parts.train, labels or known_labels(data.train, data.columns))
    if advice := kind.advice(data.columns):
        say(advice)
    kind.check([*parts.heldout, *parts.calibration])
    tokenizer = open_tokenizer(hub.existing(config.init))
    weights = class_weights(kind, parts.train) if balanced else ()
    results = Results(parts.train, parts.heldout, parts.calibration, data.long, config.report)
    task = Finetuning(layout_with_head(config, kind), kind, smoothing, weights, results=results)
    windows = [
        read(kind, tokenizer, data, examples, what)
        for examples, what in ((parts.train, "training"), (parts.heldout, "validation"))
    ]
    train, heldout = (
        pieces_of(kind, examples, texts)
        for examples, texts in zip((parts.train, parts.heldout), windows, strict=True)
    )
    config = config.resolved(len(train), task.best)
    mesh, encoder, backend = config.mesh, task.layout.config, jax.default_backend()
    batches = BatchConfig(
        data.rows, data.batch, config.steps, config.seed, encoder.hidden_size, encoder.layers, data.max_length,
        # A TPU's lanes, and the attention kernel there, take lengths of 128.
        multiple=128 if backend == "tpu" else 8,
        shards=jax.device_count() // mesh.tensor * mesh.accumulate,
        program=PROGRAM.get(backend, ACCELERATOR_PROGRAM),
    )  # fmt: skip
    judge, each_token = Judge(kind, parts.heldout, windows[1]), not HEADS[kind.head].pooled
    epochs = Epochs(train, heldout, kind.targets, tokenizer, batches, judge, each_token)
    lengths = sorted(set(epochs.arrangement.lengths))
    say(
        f"{len(train):,} examples or windows to train on, {len(heldout):,} held out, {len(parts.calibration):,} for "
        f"calibration; {data.batch} examples a step, in {epochs.batch} rows of {', '.join(map(str, lengths))} tokens, "
        f"{epochs.padding():.1%} of them padding"
    )
    return task, epochs, config


def layout_with_head(config: FinetuneConfig, kind: Kind) -> hub.Layout:
    """The encoder of `config.init` under the head of the predictions, with their keys of config.json."""
    computed = {name: getattr(config.model, name) for name in ("dtype", "attention", "remat")}
    source, _ = hub.survey(config.init, **computed)
    layout = source.with_head(kind.head, kind.labels)
    rates = {name: getattr(config.model, name) for name in ("dropout", "attention_dropout", "head_dropout")}
    rates[HEADS[kind.head].dropout] = rates["head_dropout"]
    encoder = layout.config.replace(**{name: rate for name, rate in rates.items() if rate >= 0})
    if encoder.max_positions < config.data.max_length:
        raise BertJaxError(
            f"data.max_length is {config.data.max_length} and {config.init} reads {encoder.max_positions} tokens; "
            f"set --config.data.max_length={encoder.max_positions}"
        )
    layout = dataclasses.replace(layout, config=encoder, published=layout.published | kind.published)
    kind_of(layout)  # which opens the finished model; a kind that it does not know is refused before the run
    return layout


def split_parts(config: FinetuneConfig) -> Parts:
    # The parts are those of the data, whatever the run's seed: runs that differ by it are judged by the same.
    data, kind = config.data, config.predicts
    train = kind.read(data.train, data.columns, data.most)
    if data.heldout:
        heldout = kind.read(data.heldout, data.columns)
    else:
        train, heldout = split(train, data.heldout_share)
    if kind.calibrate is Kind.calibrate or not data.calibration_share:
        return Parts(train, heldout, [])
    documents = len({example.document or example.text for example in train})
    if not enough(data.calibration_share, documents, len(train)):
        share = next((n / 100 for n in range(1, 51) if enough(n / 100, documents, len(train))), None)
        advice = f"Set --config.data.calibration_share={share:g}" if share else "Label more texts"
        say(
            f"{len(train):,} examples are too few to keep {data.calibration_share:g} of them for calibration, which "
            f"needs {FEWEST} of two documents or more; probabilities stay uncalibrated. {advice} to calibrate them"
        )
        return Parts(train, heldout, [])
    train, calibration = split(train, data.calibration_share)
    return Parts(train, heldout, calibration)


def enough(share: float, documents: int, examples: int) -> bool:
    """Whether that share of the documents holds enough examples for a calibration, if all are of one size.

    Of two documents or more: what is fitted to one is measured on another.
    """
    kept = round(documents * share)
    return kept > 1 and kept * examples >= FEWEST * documents


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


def say(text: str) -> None:
    if jax.process_index() == 0:
        print(text, flush=True)
