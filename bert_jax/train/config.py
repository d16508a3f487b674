"""What every training config may say, whatever its task: the published pre-training numbers are the defaults."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from bert_jax.config import SEEDS, NotNegative, Positive, Range, Share, check_ranges
from bert_jax.errors import BertJaxError

Rate = Annotated[float, Range(0, 1000)]
Decay = Annotated[float, Range(0, 1, below=True)]
FEWEST_LINES = 10  # of metrics in a run, so that its curves show something


@dataclass(frozen=True)
class OptimizerConfig:
    name: Literal["adam", "lamb"] = "adam"
    rate: Rate = 1e-4  # at its peak
    schedule: Literal["linear", "cosine", "warmup_stable_decay"] = "linear"
    warmup: NotNegative = 10_000  # steps
    warmup_share: Share = 0.0  # of all steps, in place of `warmup`
    decay_share: Share = 0.1  # of all steps, at the end of warmup_stable_decay
    weight_decay: Rate = 0.01  # decoupled; not of biases and LayerNorm
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Annotated[float, Range(1e-30, 1)] = 1e-6
    clip: Annotated[float, Range(0, 1e9)] = 1.0  # the gradient's norm at most; 0: not clipped
    layer_decay: Share = 1.0  # a layer's rate is that of the one above it times this
    # 0: the embeddings keep their values, N: and so do the first N layers
    frozen_layers: Annotated[int, Range(-1)] = -1

    def warmup_of(self, steps: int) -> int:
        """The steps of the warm-up of so many."""
        return round(self.warmup_share * steps) or self.warmup

    def __post_init__(self):
        check_ranges(self, "optimizer.")


@dataclass(frozen=True)
class MeshConfig:
    """How devices share the work; none of it changes what is computed, but for `reduce`, which rounds gradients."""

    data: int = -1  # copies of the model, each with its rows; -1: what the other axes leave
    fsdp: int = 1  # parts of every parameter, gathered when needed; rows are split over it too
    tensor: int = 1  # parts of heads, feed-forward and vocabulary
    # Parameters and the optimizer's moments lie in parts over data, too. A step gathers the parameters, each in the
    # type in which products read it, sends every gradient to where its part lies, and updates the parts.
    shard_optimizer: bool = False
    reduce: Literal["float32", "bfloat16"] = (
        "float32"  # the type in which gradients cross between data shards
    )
    accumulate: Positive = (
        1  # microbatches a step; their gradients are summed on each device and reduced once
    )

    def __post_init__(self):
        check_ranges(self, "mesh.")


@dataclass(frozen=True)
class CheckpointConfig:
    every: Positive = 1000  # steps
    keep: Positive = 3  # of the newest
    keep_every: NotNegative = 0  # steps; these stay for good
    best: str = ""  # a held-out metric such as mlm_loss; the best one's checkpoint stays, the run's model

    def __post_init__(self):
        check_ranges(self, "checkpoints.")


@dataclass(frozen=True)
class LogConfig:
    every: Positive = (
        100  # steps in one line of metrics.jsonl; fewer in a run that would have less than ten lines
    )
    evaluate_every: Positive = 10_000  # steps
    evaluate_batches: NotNegative = 0  # of the held-out part at most; 0: all of it
    profile: Annotated[int, Range(-1)] = -1  # the step at which a profiler trace of five steps begins

    def __post_init__(self):
        check_ranges(self, "log.")


@dataclass(frozen=True)
class RunConfig:
    task: str = "pretrain"
    seed: Annotated[int, SEEDS] = 0
    seeds: Positive = 1  # runs, by seed, seed + 1 and so on
    sweep: str = ""  # and by settings: "lr=[2e-5,3e-5];batch=[16,32]", every one with every other
    steps: int = 1_000_000
    init: str = ""  # a model directory to go on from
    scratch: bool = False  # of `init` only the sizes and the tokenizer, not the parameters
    # The step that a run from `init` begins with: 0 restarts schedule and data, N goes on with both at N.
    first_step: Annotated[int, Range(-1)] = -1
    random: Literal["threefry2x32", "rbg"] = (
        "threefry2x32"  # rbg: the hardware's, faster, other draws on another mesh
    )
    bad_steps: Positive = 10  # updates in a row that are not finite stop the run
    # Evaluations without a better checkpoints.best end the run; 0: it goes to its last step.
    patience: NotNegative = 0
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self):
        check_ranges(self)
        if self.init and self.first_step < 0:
            raise BertJaxError(
                "init needs first_step: --config.first_step=0 restarts the schedule, --config.first_step=N keeps it "
                "and goes on at step N"
            )
        if self.first_step > 0 and not self.init:
            raise BertJaxError(
                f"first_step={self.first_step} needs a model directory to go on from: --config.init=DIR"
            )
        # Of no steps is a run that measures what others begin with.
        if not (max(self.first_step, 0) < self.steps or max(self.first_step, 0) == self.steps == 0):
            raise BertJaxError(f"steps must be more than {max(self.first_step, 0)}, not {self.steps}")
        if self.patience and not self.checkpoints.best:
            raise BertJaxError("patience needs a metric; set --config.checkpoints.best=METRIC")

    @property
    def steps_in_line(self) -> int:
        """Steps in one line of metrics.jsonl, so that the shortest run has ten lines, or one for each of its steps."""
        return min(self.log.every, max((self.steps - max(self.first_step, 0)) // FEWEST_LINES, 1))
