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
    name: Literal["adam", "lamb"] = "adam"  # optimizer; lamb is for batches of thousands of rows
    rate: Rate = 1e-4  # learning rate at its peak
    # learning rate after the warm-up: linear or cosine decay, or constant with a decay at the end
    schedule: Literal["linear", "cosine", "warmup_stable_decay"] = "linear"
    warmup: NotNegative = 10_000  # steps in which the learning rate rises from 0 to its peak
    # share of all steps that are warm-up, used instead of `warmup`; 0: `warmup` counts
    warmup_share: Share = 0.0
    decay_share: Share = 0.1  # share of all steps in which the rate of warmup_stable_decay falls
    weight_decay: Rate = 0.01  # decoupled weight decay; biases and LayerNorm have none
    beta1: Decay = 0.9  # decay of the mean of the gradients
    beta2: Decay = 0.999  # decay of the mean of their squares
    epsilon: Annotated[float, Range(1e-30, 1)] = 1e-6  # added to the divisor of an update
    clip: Annotated[float, Range(0, 1e9)] = 1.0  # largest norm of the gradient; 0: not clipped
    layer_decay: Share = 1.0  # learning rate of a layer as a share of that of the layer above it
    # parts that are not trained; -1: none; 0: the embeddings; N: the embeddings and the first N layers
    frozen_layers: Annotated[int, Range(-1)] = -1

    def warmup_of(self, steps: int) -> int:
        """The steps of the warm-up of so many."""
        return round(self.warmup_share * steps) if self.warmup_share else self.warmup

    def __post_init__(self):
        check_ranges(self, "optimizer.")


@dataclass(frozen=True)
class MeshConfig:
    """How devices share the work; none of it changes what is computed, but for `reduce`, which rounds gradients.

    With `shard_optimizer` a step gathers the parameters, each in the type in which products read it, sends every
    gradient to where its part lies, and updates the parts.
    """

    data: int = -1  # data-parallel replicas; -1: all devices not used by the other axes
    fsdp: int = 1  # parts of every parameter, gathered when they are read; rows are split over them, too
    tensor: int = 1  # parts of attention heads, feed-forward and vocabulary
    # splits parameters and the optimizer's moments over the copies of the model
    shard_optimizer: bool = False
    reduce: Literal["float32", "bfloat16"] = "float32"  # type in which gradients are sent between devices
    accumulate: Positive = 1  # parts of a batch, computed one after the other; memory falls with their number

    def __post_init__(self):
        check_ranges(self, "mesh.")


@dataclass(frozen=True)
class CheckpointConfig:
    every: Positive = 1000  # steps from one checkpoint to the next
    keep: Positive = 3  # newest checkpoints that are kept
    keep_every: NotNegative = 0  # steps between checkpoints that are never removed; 0: none
    # validation metric whose best checkpoint becomes the model of the run; "": the last one does
    best: str = ""

    def __post_init__(self):
        check_ranges(self, "checkpoints.")


@dataclass(frozen=True)
class LogConfig:
    every: Positive = 100  # steps from one line of metrics to the next; a short run has ten lines anyway
    evaluate_every: Positive = 10_000  # steps from one validation to the next
    evaluate_batches: NotNegative = 0  # at most so many validation batches are measured; 0: all
    profile: Annotated[int, Range(-1)] = -1  # step at which a profiler trace of five steps begins; -1: none

    def __post_init__(self):
        check_ranges(self, "log.")


@dataclass(frozen=True)
class RunConfig:
    task: str = "pretrain"  # what is learnt: the name of a task, or the path of a module of your own
    seed: Annotated[int, SEEDS] = 0  # seed of initial values, order, masks and dropout
    seeds: Positive = 1  # runs, with seed, seed + 1 and so on
    # settings that are all tried: "lr=[2e-5,3e-5];batch=[16,32]"; only in a sweep lr is short for
    # optimizer.rate and batch for data.batch, and other keys are written whole
    sweep: str = ""
    steps: NotNegative = 1_000_000  # updates of the parameters; 0: none, the run measures what it begins with
    init: str = ""  # model directory that the run begins from; "": initial values
    scratch: bool = False  # takes the sizes and the tokenizer of `init`, but not its parameters
    # step that a run from `init` begins with; 0: schedule and data start anew, N: both go on at step N; -1: unset
    first_step: Annotated[int, Range(-1)] = -1
    # random numbers of dropout; rbg: the hardware's, faster, but other ones on another mesh
    random: Literal["threefry2x32", "rbg"] = "threefry2x32"
    bad_steps: Positive = 10  # updates in a row that are not finite before the run stops
    # validations without a better checkpoints.best before the run ends; 0: it never ends early
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
