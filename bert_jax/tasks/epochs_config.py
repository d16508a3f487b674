"""The config of the runs that go through their examples in epochs."""

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from bert_jax.config import NotNegative, Positive, Range, Share, check_ranges
from bert_jax.errors import BertJaxError
from bert_jax.models.config import Attention, EncoderConfig
from bert_jax.train.config import CheckpointConfig, LogConfig, OptimizerConfig, Rate, RunConfig

MOST_MEASURED = 20  # times in a run: an epoch of a few examples is over in a step or two
LEAST_BETWEEN_CHECKPOINTS = 100  # steps, where nothing is measured: writing one takes as long as several
MOST_EXAMPLES = 100_000_000  # of all steps together, for their order is held in memory
BASE_WIDTH, HIGHEST_RATE = 768, 3e-4
# A rate of dropout, or -1.
Dropout = Annotated[float, Range(0, 1, below=True, beside=-1)]


# The published grid of base: 2e-5 to 5e-5, 16 or 32 examples, 2 to 4 epochs; that of the miniatures goes up to 3e-4.
@dataclass(frozen=True)
class GentleOptimizer(OptimizerConfig):
    # learning rate at its peak; 0: 3e-5 for a model as wide as base (rerank 5e-5), higher for narrower ones and for
    # contrast
    rate: Rate = 0.0
    warmup: NotNegative = 0
    warmup_share: Share = 0.1


@dataclass(frozen=True)
class EpochLog(LogConfig):
    every: Positive = 20
    # steps from one validation to the next; 0: once an epoch, and at most 20 times in all
    evaluate_every: NotNegative = 0


@dataclass(frozen=True)
class EpochCheckpoints(CheckpointConfig):
    # steps from one checkpoint to the next; 0: after each validation, and every 100 without one
    every: NotNegative = 0
    keep: Positive = 1
    # validation metric whose best checkpoint becomes the model of the run; "": that of the task
    best: str = ""


@dataclass(frozen=True)
class ModelConfig:
    """How the encoder of `init` computes; -1 is the directory's own."""

    # type of the computation; auto: what is fast here
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    attention: Attention = "auto"  # kernel of attention; auto: the fastest that can do it here
    # activations that the backward pass computes again, to save memory: norms alone, all but matrix products, all
    remat: Literal["none", "dots", "full"] = "none"
    dropout: Dropout = -1.0  # dropout of hidden states; -1: that of `init`
    attention_dropout: Dropout = -1.0  # dropout of attention probabilities; -1: that of `init`

    def __post_init__(self):
        check_ranges(self, "model.")

    @property
    def computed(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("dtype", "attention", "remat")}

    def changed(self, encoder: EncoderConfig, longest: int, init: str) -> EncoderConfig:
        """The encoder with the rates that the config gives; it must read texts of `longest` tokens."""
        if encoder.max_positions < longest:
            raise BertJaxError(
                f"data.max_length is {longest} and {init} reads {encoder.max_positions} tokens; set "
                f"--config.data.max_length={encoder.max_positions}"
            )
        rates = {name: getattr(self, name, -1) for name in ("dropout", "attention_dropout", "head_dropout")}
        return encoder.replace(**{name: rate for name, rate in rates.items() if rate >= 0})


@dataclass(frozen=True)
class EpochsConfig(RunConfig, ABC):
    usual_epochs: ClassVar[float] = 3.0
    # With fewer a model of a few hundred examples has learnt less than it could.
    least_steps: ClassVar[int] = 60
    # The learning rate of base, and the power of its width by which that of a narrower model is higher.
    usual_rate: ClassVar[float] = 3e-5
    rate_power: ClassVar[int] = 1

    # updates of the parameters; 0: none, the run measures what it begins with; -1: as many as the epochs take
    steps: Annotated[int, Range(-1)] = -1
    # passes over the training data; N: N of them, however few steps that is; 0: the usual number of the task (3; answer
    # 2, distil_classifier 5, embed and rerank 1), but at least 60 steps (rerank 120)
    epochs: Annotated[float, Range(0, 1e6)] = 0.0
    first_step: Annotated[int, Range(-1)] = 0
    optimizer: GentleOptimizer = field(default_factory=GentleOptimizer)
    log: EpochLog = field(default_factory=EpochLog)
    checkpoints: EpochCheckpoints = field(default_factory=EpochCheckpoints)

    def __post_init__(self):
        if not self.init:
            raise BertJaxError("config key init is missing; name a model directory, --config.init=DIR")
        check_ranges(self)
        is_resolved = self.steps >= 0 and self.log.evaluate_every and self.checkpoints.every
        if is_resolved and (self.checkpoints.best or not self.patience):
            super().__post_init__()

    @property
    @abstractmethod
    def batch(self) -> int:
        """Examples of a step."""

    def steps_of(self, examples: int) -> int:
        """So many as their epochs take."""
        if self.steps >= 0 or self.epochs:
            return self.steps if self.steps >= 0 else math.ceil(examples * self.epochs / self.batch)
        return max(math.ceil(examples * self.usual_epochs / self.batch), self.least_steps)

    def rate_of(self, width: int, examples: int) -> float:
        """The learning rate that is set, or else the usual one for a model so wide and so many examples."""
        return self.optimizer.rate or self.usual_rate_of(width, examples)

    def usual_rate_of(self, width: int, examples: int) -> float:
        return min(self.usual_rate * (BASE_WIDTH / width) ** self.rate_power, HIGHEST_RATE)

    def resolved(self, examples: int, best: str, width: int) -> Self:
        """With what is left to the data, and to the width of the model's states."""
        if self.patience and not (self.checkpoints.best or best):
            raise BertJaxError(
                "patience needs a validation metric that chooses the model, and this run has none, as runs with folds "
                "or without a validation set; leave --config.patience out"
            )
        epoch, steps = math.ceil(examples / self.batch), self.steps_of(examples)
        if steps * self.batch > MOST_EXAMPLES:
            raise BertJaxError(
                f"{steps:,} steps of data.batch={self.batch} are more than {MOST_EXAMPLES:,} examples; set fewer "
                "--config.epochs, or fewer --config.steps"
            )
        evaluate_every = self.log.evaluate_every or max(epoch, math.ceil(steps / MOST_MEASURED))
        between = evaluate_every if best else max(evaluate_every, LEAST_BETWEEN_CHECKPOINTS)
        checkpoints = dataclasses.replace(
            self.checkpoints,
            every=self.checkpoints.every or between,
            best=self.checkpoints.best or best,
        )
        return dataclasses.replace(
            self,
            steps=steps,
            optimizer=dataclasses.replace(self.optimizer, rate=self.rate_of(width, examples)),
            log=dataclasses.replace(self.log, evaluate_every=evaluate_every),
            checkpoints=checkpoints,
        )
