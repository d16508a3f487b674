"""What the fine-tunings share: a config, a head on the encoder of a model directory, and examples in epochs."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, TypeVar

import jax

from bert_jax.data.examples.arrange import BatchConfig, Piece, RowLayout, Target
from bert_jax.data.examples.columns import Columns
from bert_jax.data.examples.epochs import Epochs, Judge
from bert_jax.data.examples.example import Example, Parts
from bert_jax.data.examples.split import split
from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.models.cost import layer_flops
from bert_jax.models.heads import HEADS
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.tokenizer import Encoding, Tokenizer
from bert_jax.train.config import CheckpointConfig, LogConfig, OptimizerConfig, RunConfig
from bert_jax.train.task import Results, Task

FEWEST = 50  # examples that a calibration is learnt from


@dataclass(frozen=True)
class ExamplesConfig:
    train: str = ""  # a file, or tfds:NAME/CONFIG:SPLIT
    heldout: str = ""  # likewise; "" holds out a share of train, by document
    heldout_share: float = 0.1
    # Of the documents left to train on, kept to learn how far the model can be trusted; 0: none.
    calibration_share: float = 0.05
    columns: Columns = field(default_factory=Columns)
    most: int = 0  # examples of train that are used, from its first; 0: all
    batch: int = 32  # examples of a step
    max_length: int = 128  # tokens of an example, or of a window of it
    long: Literal["cut", "windows"] = "cut"  # what is done with longer ones
    overlap: int = 32  # tokens that neighbouring windows share
    rows: RowLayout = "packed"  # how a step's examples stand in its rows; what is learnt is the same

    def __post_init__(self):
        if not self.train:
            raise BertJaxError(
                "config key data.train is missing; give a file, --config.data.train=train.csv, or tfds:NAME:SPLIT"
            )
        for name in ("batch", "max_length"):
            if getattr(self, name) < 1:
                raise BertJaxError(f"data.{name} must be 1 or more, not {getattr(self, name)}")
        if not self.heldout and not 0 < self.heldout_share < 1:
            raise BertJaxError(
                f"data.heldout_share must be between 0 and 1, not {self.heldout_share}; or name a file, data.heldout"
            )
        if not 0 <= self.calibration_share < 1:
            raise BertJaxError(
                f"data.calibration_share must be 0 or more and below 1, not {self.calibration_share}"
            )


@dataclass(frozen=True)
class Computing:
    """How the model of `init` computes; -1 is the directory's own."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: str = "auto"
    remat: Literal["none", "dots", "full"] = "none"
    dropout: float = -1.0
    attention_dropout: float = -1.0
    head_dropout: float = -1.0


# The published grid: 2e-5 to 5e-5, 16 or 32 examples, 2 to 4 epochs.
@dataclass(frozen=True)
class GentleOptimizer(OptimizerConfig):
    rate: float = 3e-5
    warmup: int = 0
    warmup_share: float = 0.1


@dataclass(frozen=True)
class EpochLog(LogConfig):
    every: int = 20
    evaluate_every: int = 0  # steps; 0: once an epoch


@dataclass(frozen=True)
class EpochCheckpoints(CheckpointConfig):
    every: int = 0  # steps; 0: whenever what is held out was measured
    keep: int = 1
    best: str = ""  # "": the task's own


@dataclass(frozen=True)
class FinetuneConfig(RunConfig):
    steps: int = 0  # 0: as many as the epochs take
    epochs: float = 3.0
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
        if self.epochs <= 0:
            raise BertJaxError(f"epochs must be more than 0, not {self.epochs}")
        if self.steps and self.log.evaluate_every and self.checkpoints.every:  # resolved
            super().__post_init__()

    def resolved(self, examples: int, best: str) -> Self:
        """With what is left to the data."""
        epoch = math.ceil(examples / self.data.batch)
        evaluate_every = self.log.evaluate_every or epoch
        checkpoints = dataclasses.replace(
            self.checkpoints,
            every=self.checkpoints.every or evaluate_every,
            best=self.checkpoints.best or best,
        )
        return dataclasses.replace(
            self,
            steps=self.steps or math.ceil(examples * self.epochs / self.data.batch),
            log=dataclasses.replace(self.log, evaluate_every=evaluate_every),
            checkpoints=checkpoints,
        )


@dataclass(frozen=True)
class Finetuning(Task):
    """A head on the encoder; `targets` are what it learns from."""

    targets: dict[str, Target] = field(default_factory=dict)

    def learnt(self, piece: Piece) -> tuple[str, dict[int, str]]:
        """What a person sees of its targets: of the whole, and of tokens by their places."""
        raise NotImplementedError

    def flops(self, rows: int, length: int) -> float:
        return 3 * self.layout.config.layers * layer_flops(self.layout.config, rows * length, length)


C = TypeVar("C", bound=FinetuneConfig)
T = TypeVar("T", bound=Finetuning)


def headed(config: FinetuneConfig, head: str, labels: Sequence[str], **published) -> hub.Layout:
    """The encoder of `config.init` under a head, published with what else its config.json must say."""
    computed = {name: getattr(config.model, name) for name in ("dtype", "attention", "remat")}
    theirs, _ = hub.survey(config.init, **computed)
    layout = theirs.with_head(head, labels)
    rates = {name: getattr(config.model, name) for name in ("dropout", "attention_dropout", "head_dropout")}
    encoder = layout.config.replace(**{name: rate for name, rate in rates.items() if rate >= 0})
    if encoder.max_positions < config.data.max_length:
        raise BertJaxError(
            f"data.max_length is {config.data.max_length} and {config.init} reads {encoder.max_positions} tokens; "
            f"set --config.data.max_length={encoder.max_positions}"
        )
    return dataclasses.replace(layout, config=encoder, published=layout.published | published)


def parted(
    config: FinetuneConfig, read: Callable[[str, Columns, int], list[Example]], calibrates: bool = True
) -> Parts:
    # The parts are those of the data, whatever the run's seed: runs that differ by it are judged by the same.
    data = config.data
    train = read(data.train, data.columns, data.most)
    if data.heldout:
        heldout = read(data.heldout, data.columns, 0)
    else:
        train, heldout = split(train, data.heldout_share)
    if not (calibrates and data.calibration_share):
        return Parts(train, heldout, [])
    documents = len({example.document or example.text for example in train})
    if round(documents * data.calibration_share) * len(train) < FEWEST * documents:
        say(
            f"{len(train):,} examples are too few to keep {data.calibration_share:g} of them for calibration, of which "
            f"{FEWEST} are wanted; without it scores are as the logits say. "
            f"--config.data.calibration_share={math.ceil(100 * FEWEST / len(train)) / 100:g} would keep them"
        )
        return Parts(train, heldout, [])
    train, calibration = split(train, data.calibration_share)
    return Parts(train, heldout, calibration)


def in_windows(texts, tokenizer: Tokenizer, data: ExamplesConfig, what: str) -> list[list[Encoding]]:
    """Each text whole, cut or in windows; what was cut is said."""
    if data.long == "windows":
        return tokenizer.windows(texts, max_length=data.max_length, overlap=data.overlap)
    encodings = tokenizer.encode(texts, max_length=data.max_length)
    cut = [encoding.dropped for encoding in encodings if encoding.dropped]
    if cut:
        say(
            f"{len(cut):,} of {len(texts):,} {what} examples are longer than {data.max_length} tokens and are cut, "
            f"{sum(cut):,} tokens in all; --config.data.long=windows reads all of them, and data.max_length may be more"
        )
    return [[encoding] for encoding in encodings]


def in_epochs(
    config: C, task: T, train: Sequence[Piece], heldout: Sequence[Piece], judge: Judge,
    tokenizer: Tokenizer, parts: Parts,
) -> tuple[T, Epochs, C]:  # fmt: skip
    """What `open` of a fine-tuning gives."""
    config = config.resolved(len(train), task.best)
    mesh = config.mesh
    batches = BatchConfig(
        config.data.rows, config.data.batch, config.steps, config.seed, task.layout.config.hidden_size,
        config.data.max_length,
        # A TPU's lanes, and the attention kernel there, take lengths of 128.
        multiple=128 if jax.default_backend() == "tpu" else 8,
        shards=jax.device_count() // mesh.tensor * mesh.accumulate,
    )  # fmt: skip
    each_token = not HEADS[task.layout.heads[0]].pooled
    data = Epochs(train, heldout, task.targets, tokenizer, batches, judge, each_token)
    lengths = sorted(set(data.arrangement.lengths))
    say(
        f"{len(train):,} examples or windows to train on, {len(heldout):,} held out, {len(parts.calibration):,} for "
        f"calibration; {config.data.batch} examples a step, in "
        f"{data.batch} rows of {', '.join(map(str, lengths))} tokens, {data.padding():.1%} of them padding"
    )
    results = Results(parts.train, parts.heldout, parts.calibration, config.data.long, config.report)
    return dataclasses.replace(task, results=results), data, config


def tokenizer_of(config: FinetuneConfig) -> Tokenizer:
    return open_tokenizer(hub.existing(config.init))


def say(text: str) -> None:
    if jax.process_index() == 0:
        print(text, flush=True)
