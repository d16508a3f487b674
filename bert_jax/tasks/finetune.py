"""What the fine-tunings share: a config, a head on the encoder of a model directory, and examples in epochs."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self, TypeVar, cast

import jax
import jax.numpy as jnp

from bert_jax.config import NotNegative, Positive, Range, Share, check_ranges
from bert_jax.data.examples.arrange import ACCELERATOR_PROGRAM, PROGRAM, BatchConfig, Piece, RowLayout
from bert_jax.data.examples.columns import Columns, known_labels
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example, Parts
from bert_jax.data.examples.split import folds, split
from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.hub import sentence_transformers
from bert_jax.losses import Loss
from bert_jax.models.heads import HEADS
from bert_jax.predictions.calibration import NONE
from bert_jax.predictions.kind import Kind, Windows, kind_of
from bert_jax.tasks.probe import with_probe
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import Reading, Truncated
from bert_jax.train.config import CheckpointConfig, LogConfig, OptimizerConfig, Rate, RunConfig
from bert_jax.train.task import Data, Results, Task

EPOCHS = 3.0
LEAST_STEPS = 60  # with fewer a model of a few hundred examples has learnt less than it could
FOLDS = 5
SHARES = ("heldout_share", "calibration_share")
MANY = 2_000  # examples from which on a split costs little, and folds would cost much
FEWEST = 25  # examples that a calibration is learnt from
MOST_EXAMPLES = 100_000_000  # of all steps together, for their order is held in memory
Method = Literal["finetune", "probe"]
# A rate of dropout, or -1.
Dropout = Annotated[float, Range(0, 1, below=True, beside=-1)]


@dataclass(frozen=True)
class ExamplesConfig:
    train: str = ""  # a file, or tfds:NAME/CONFIG:SPLIT
    heldout: str = ""  # likewise; "" holds out a share of train, by document
    heldout_share: Share = 0.1
    # Of the documents left to train on, kept to learn how far the model can be trusted; 0: none.
    calibration_share: Annotated[float, Range(0, 1, below=True)] = 0.05
    # Parts of the training data. Each is predicted by a model that learnt from the others, and calibration and scores
    # come from all of these predictions; the final model learns from everything. -1: 5 of less than 2,000 examples,
    # else 0, which holds out the shares above.
    folds: Annotated[int, Range(-1, 100)] = -1
    fold: Annotated[
        int, Range(-1, 99)
    ] = -1  # the one that this run leaves out; -1: it learns from all of them
    columns: Columns = field(default_factory=Columns)
    most: NotNegative = 0  # examples of train that are used, drawn at random whatever the seed; 0: all
    batch: Annotated[int, Range(1, 1 << 20)] = 32  # examples of a step
    max_length: Annotated[int, Range(1, 1 << 20)] = 128  # tokens of an example, or of a window of it
    long: Literal["cut", "windows"] = "cut"  # what is done with longer ones
    overlap: NotNegative = 32  # tokens that neighbouring windows share
    # Rows of a table that are no examples, as those with an empty cell, are counted and left out; False: refused.
    skip_bad: bool = False
    rows: RowLayout = "packed"  # how a step's examples stand in its rows; what is learnt is the same

    def __post_init__(self):
        check_ranges(self, "data.")
        if not self.train:
            raise BertJaxError(
                "config key data.train is missing; give a file, --config.data.train=train.csv, or tfds:NAME:SPLIT"
            )
        if self.folds == 1:
            raise BertJaxError("data.folds is 1; at least 2 are needed, or 0 for a split")
        if 0 <= self.fold >= self.folds:
            raise BertJaxError(
                f"data.fold={self.fold} is not one of data.folds={self.folds}, which count from 0"
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
    # What a classifier reads: the mean of a text's states, that of [CLS], or what the published model of the family
    # does, which transformers opens. auto: as an embedder pools, else as published.
    pooling: Literal["auto", "published", "mean", "cls"] = "auto"
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
    epochs: Annotated[float, Range(0, 1e6)] = 0.0  # 0: 3, or as many as LEAST_STEPS steps take
    first_step: int = 0
    report: bool = True  # writes WORKDIR/report when the run has ended
    optimizer: GentleOptimizer = field(default_factory=GentleOptimizer)
    log: EpochLog = field(default_factory=EpochLog)
    checkpoints: EpochCheckpoints = field(default_factory=EpochCheckpoints)
    model: Computing = field(default_factory=Computing)
    # probe: only the head learns, as a regression on the frozen encoder's features, in seconds.
    # auto: the one that predicts better out of fold; where there are no folds, finetune.
    method: Literal["auto", "finetune", "probe"] = "auto"
    # What a new head begins as: the probe, or random values.
    head: Literal["probe", "random"] = "probe"
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

    def with_method(self, method: Method) -> Self:
        return dataclasses.replace(self, method=method, steps=0 if method == "probe" else self.steps)

    def resolved(self, examples: int, best: str) -> Self:
        """With what is left to the data."""
        epoch = math.ceil(examples / self.data.batch)
        steps = self.steps or math.ceil(examples * (self.epochs or EPOCHS) / self.data.batch)
        if not (self.steps or self.epochs):
            steps = max(steps, LEAST_STEPS)
        if self.method == "probe":
            steps = 0
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
    probe: bool = field(default=False, compare=False)  # a new head begins as one

    @property
    def best(self) -> str:
        return self.kind.best

    @property
    def head(self) -> str:
        return self.layout.heads[-1]

    def begun(self, params: dict, fresh: Sequence[str], data: Data) -> dict:
        link = self.kind.link
        if not self.probe or link is None or self.head not in fresh:
            return params
        pieces = cast(Epochs, data).train
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
    layout = source.with_head(head_of(config, kind), kind.labels)
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


def head_of(config: FinetuneConfig, kind: Kind) -> str:
    """The kind's head that reads what `model.pooling` names, by default what an embedder pools."""
    pooling: str = config.model.pooling
    if pooling == "auto":
        embedder = sentence_transformers.read(hub.existing(config.init))
        pooling = embedder.pooling if embedder else "published"
    return next((head for head in kind.heads if HEADS[head].reads == pooling), kind.heads[0])


def split_parts(config: FinetuneConfig) -> Parts:
    # The parts are those of the data, whatever the run's seed: runs that differ by it are judged by the same.
    data, kind = config.data, config.predicts
    columns = data.columns.skipping_bad(data.skip_bad)
    train = kind.read(data.train, columns, data.most)
    count = folds_of(config, len(train)) if data.folds < 0 else data.folds
    if count and data.fold < 0:
        return Parts(train, kind.read(data.heldout, columns) if data.heldout else [], [], count)
    if count:
        numbered = list(zip(train, folds(train, count), strict=True))
        kept = [example for example, fold in numbered if fold != data.fold]
        return Parts(kept, [example for example, fold in numbered if fold == data.fold], [], count)
    if data.heldout:
        heldout = kind.read(data.heldout, columns)
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


def folds_of(config: FinetuneConfig, examples: int) -> int:
    """Into how many parts so many examples are divided, if the config leaves it to the data."""
    # Who gives one of these keys wants a part held out.
    asked = config.patience or config.checkpoints.best
    asked = asked or any(getattr(config.data, key) != getattr(ExamplesConfig, key) for key in SHARES)
    return FOLDS if not asked and 2 * FOLDS <= examples < MANY and jax.process_count() == 1 else 0


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
