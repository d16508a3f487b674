"""The config of runs that train in epochs."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from bert_jax.core.config import NonNegative, Positive, Range
from bert_jax.core.errors import BertJaxError
from bert_jax.models.encoder_config import AttentionKernelName, EncoderConfig
from bert_jax.training.run_config import CheckpointConfig, LogConfig, OptimizerConfig, Rate, RunConfig, Warmup

MAX_EVALUATIONS = 20  # validations in a run: with few examples an epoch is over in a step or two
# steps, if nothing is validated: writing a checkpoint takes as long as several steps
MIN_CHECKPOINT_INTERVAL = 100
MAX_TOTAL_EXAMPLES = 100_000_000  # of all steps together, because their order is held in memory
BASE_WIDTH, MAX_LEARNING_RATE = 768, 3e-4
GOING_ON_RATE = 3e-5  # of a model that already is what the run makes: the learning rate at BASE_WIDTH
# A 6-layer MiniLM on 6,400 examples of SST-2, two epochs: .835, .849 and .838 at 3e-4, 1e-3 and 3e-3; all parameters at
# 6e-5: .848.
ADAPTER_FACTOR = 15.0
# A dropout rate, or -1.
Dropout = Annotated[float, Range(0, 1, exclusive_maximum=True, sentinel=-1)]


# BERT's published grid for base: rates from 2e-5 to 5e-5, batches of 16 or 32, 2 to 4 epochs; for the miniature models,
# rates up to 3e-4.
@dataclass(frozen=True)
class FinetuneOptimizerConfig(OptimizerConfig):
    # peak learning rate; 0: 3e-5 for a model as wide as BERT-base (tag, and rerank unless `init` is a reranker, 5e-5),
    # higher for narrower models (tag: only for fewer than 2,000 examples) and for method=contrastive; with adapters 15
    # times as high
    learning_rate: Rate = 0.0
    warmup_steps: Warmup = 0.1


@dataclass(frozen=True)
class EpochLogConfig(LogConfig):
    every: Positive = 20
    # number of steps between evaluations on the validation set; 0: once an epoch, and at most 20 times in all
    evaluate_every: NonNegative = 0


@dataclass(frozen=True)
class EpochCheckpointConfig(CheckpointConfig):
    # number of steps between checkpoints; 0: as log.evaluate_every, but at least 100 in a run that does not validate
    every: NonNegative = 0
    keep: Positive = 1
    # validation metric that selects the checkpoint to become the run's model; "": the usual metric of the task
    best_metric: str = ""


@dataclass(frozen=True)
class InitEncoderConfig:
    """How the encoder of `init` computes; a rate of -1 keeps that of the directory."""

    # data type of the computation; auto: the faster one on this device
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    # attention kernel; auto: the fastest one for this model and device
    attention: AttentionKernelName = "auto"
    # activations that the backward pass recomputes, to save memory: only norms, all but matrix products, or all
    remat: Literal["none", "dots", "full"] = "none"
    hidden_dropout_prob: Dropout = -1.0  # dropout of hidden states; -1: that of `init`
    attention_probs_dropout_prob: Dropout = -1.0  # dropout of attention probabilities; -1: that of `init`

    @property
    def compute_settings(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("dtype", "attention", "remat")}

    @property
    def dropout_rates(self) -> dict[str, float]:
        """The rates that are set here; not every section has that of the head."""
        names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "head_dropout")
        rates = {name: getattr(self, name, -1.0) for name in names}
        return {name: rate for name, rate in rates.items() if rate >= 0}

    def update_encoder(self, encoder: EncoderConfig, longest: int, init: str) -> EncoderConfig:
        """Return the encoder with the config's dropout rates; refuse one that cannot read texts of `longest` tokens."""
        if encoder.max_position_embeddings < longest:
            raise BertJaxError(
                f"data.max_length is {longest}, but {init} reads at most {encoder.max_position_embeddings} tokens; set "
                f"--config.data.max_length={encoder.max_position_embeddings}"
            )
        return encoder.replace(**self.dropout_rates)


@dataclass(frozen=True)
class EpochsConfig(RunConfig):
    default_epochs: ClassVar[float] = 3.0
    # With fewer steps, a model trained on a few hundred examples learns less than it could.
    min_steps: ClassVar[int] = 60
    # The learning rate for a model as wide as base; for other widths it is multiplied by (768 / width) ** rate_power.
    base_learning_rate: ClassVar[float]
    rate_power: ClassVar[int] = 1

    # number of updates; 0: none, the run evaluates its initial parameters; -1: as many as the epochs take
    steps: Annotated[int, Range(-1)] = -1
    # passes over the training data; 0: the usual number of the task (3; answer 2, distil_classifier 5, embed,
    # late_interaction, rerank and sparse 1), but at least 60 steps (method=contrastive 30, rerank 120)
    epochs: Annotated[float, Range(0, 1e6)] = 0.0
    optimizer: FinetuneOptimizerConfig = field(default_factory=FinetuneOptimizerConfig)
    log: EpochLogConfig = field(default_factory=EpochLogConfig)
    checkpoints: EpochCheckpointConfig = field(default_factory=EpochCheckpointConfig)

    def __post_init__(self):
        if not self.init:
            raise BertJaxError("config key init is missing; name a model directory, --config.init=DIR")
        self.check_ranges()
        is_resolved = self.steps >= 0 and self.log.evaluate_every and self.checkpoints.every
        if is_resolved and (self.checkpoints.best_metric or not self.patience):
            super().__post_init__()

    def num_steps(self, examples: int) -> int:
        """Return the number of steps for so many training examples."""
        if self.steps >= 0 or self.epochs:
            return self.steps if self.steps >= 0 else math.ceil(examples * self.epochs / self.batch_size)
        return max(math.ceil(examples * self.default_epochs / self.batch_size), self.fewest_steps)

    @property
    def fewest_steps(self) -> int:
        """The least steps of a run whose steps and epochs are not set."""
        return self.min_steps

    def choose_learning_rate(self, width: int, examples: int) -> float:
        """Return the configured learning rate, or else the usual one for this model width and number of examples."""
        return self.optimizer.learning_rate or self.adapter_factor * self.default_learning_rate(
            width, examples
        )

    @property
    def adapter_factor(self) -> float:
        """How many times the usual learning rate that of adapters is."""
        return ADAPTER_FACTOR if self.adapter.rank else 1.0

    def default_learning_rate(self, width: int, examples: int) -> float:
        return min(self.base_learning_rate * (BASE_WIDTH / width) ** self.rate_power, MAX_LEARNING_RATE)

    def resolve_defaults(self, examples: int, best_metric: str, width: int) -> Self:
        """Return the config with the values that follow from the data and from the width of the hidden states.

        `best_metric` is the usual validation metric of the task; "" if nothing is validated during the run.
        """
        if self.patience and not (self.checkpoints.best_metric or best_metric):
            raise BertJaxError(
                "patience needs validation during the run, which runs with folds and runs without a validation set do "
                "not have; leave --config.patience out"
            )
        epoch, steps = math.ceil(examples / self.batch_size), self.num_steps(examples)
        if steps * self.batch_size > MAX_TOTAL_EXAMPLES:
            raise BertJaxError(
                f"{steps:,} steps of data.batch_size={self.batch_size} are more than {MAX_TOTAL_EXAMPLES:,} "
                "examples; set fewer --config.epochs, or fewer --config.steps"
            )
        evaluate_every = self.log.evaluate_every or max(epoch, math.ceil(steps / MAX_EVALUATIONS))
        between = evaluate_every if best_metric else max(evaluate_every, MIN_CHECKPOINT_INTERVAL)
        checkpoints = dataclasses.replace(
            self.checkpoints,
            every=self.checkpoints.every or between,
            best_metric=self.checkpoints.best_metric or best_metric,
        )
        rate = self.choose_learning_rate(width, examples)
        return dataclasses.replace(
            self,
            steps=steps,
            optimizer=dataclasses.replace(self.optimizer, learning_rate=rate),
            log=dataclasses.replace(self.log, evaluate_every=evaluate_every),
            checkpoints=checkpoints,
        )


@dataclass(frozen=True)
class GoingOnConfig(EpochsConfig):
    """The config of a run whose `init` may already be what the run makes: an embedder, or a reranker."""

    # The share of what goes on, if the config leaves it open; -1: the validation set chooses it.
    usual_share: ClassVar[float] = 0.5
    # weight of the parameters of `init` in the final model, which is their mean with the trained ones; -1: 0 unless
    # `init` is already an embedder, whose share the validation set chooses, or (rerank) a reranker, which gets 0.5
    init_share: Annotated[float, Range(0, 1, exclusive_maximum=True, sentinel=-1)] = -1.0

    def resolve_start(self, goes_on: bool, width: int) -> Self:
        """Return the config with the values that follow from the start; `goes_on`: `init` is what the run makes."""
        share = self.init_share if self.init_share >= 0 else self.usual_share * goes_on
        usual = min(GOING_ON_RATE * BASE_WIDTH / width, MAX_LEARNING_RATE) if goes_on else 0.0
        rate = self.optimizer.learning_rate or self.adapter_factor * usual
        return dataclasses.replace(
            self, init_share=share, optimizer=dataclasses.replace(self.optimizer, learning_rate=rate)
        )


def check_validation(file: str, share: float) -> None:
    """Refuse a share of the training data that gives no validation set, unless a file holds one."""
    if not file and not 0 < share < 1:
        raise BertJaxError(
            f"data.validation_ratio must be between 0 and 1, not {share}; or set --config.data.validation=FILE"
        )
