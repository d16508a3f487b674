"""The config keys of every training run, whatever its task; the defaults are the published pre-training settings."""

from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, ClassVar, Literal

from bert_jax.core.config import SEED_RANGE, NonNegative, Positive, Range, Share, check_ranges
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.hub.adapter_targets import AdapterConfig

Rate = Annotated[float, Range(0, 1000)]
Warmup = Annotated[float, Range(0, 1e9)]
Decay = Annotated[float, Range(0, 1, exclusive_maximum=True)]
FEWEST_LINES = 10  # least number of lines of metrics in a run, so that its curves show something


@dataclass(frozen=True)
class OptimizerConfig:
    name: Literal["adam", "lamb"] = "adam"  # optimizer; lamb is for batches of thousands of rows
    learning_rate: Rate = 1e-4  # peak learning rate
    # learning rate after the warm-up: linear or cosine decay, or constant with a decay at the end
    schedule: Literal["linear", "cosine", "warmup_stable_decay"] = "linear"
    # number of steps in which the learning rate rises from 0 to its peak; below 1: a share of all steps
    warmup_steps: Warmup = 10_000
    decay_ratio: Share = 0.1  # share of all steps, at the end, in which warmup_stable_decay decays
    weight_decay: Rate = 0.01  # decoupled weight decay; biases and LayerNorm have none
    beta1: Decay = 0.9  # decay rate of the running mean of the gradients
    beta2: Decay = 0.999  # decay rate of the running mean of the squared gradients
    epsilon: Annotated[float, Range(1e-30, 1)] = 1e-6  # added to the denominator of an update
    # norm to which larger gradients are clipped; 0: no clipping
    max_grad_norm: Annotated[float, Range(0, 1e9)] = 1.0
    layer_decay: Share = 1.0  # learning rate of a layer, as a share of the rate of the layer above it
    # what is not trained; -1: everything is trained; 0: the embeddings; N: the embeddings and the first N layers
    frozen_layers: Annotated[int, Range(-1)] = -1

    def num_warmup_steps(self, steps: int) -> int:
        return round(self.warmup_steps * steps if self.warmup_steps < 1 else self.warmup_steps)

    def __post_init__(self):
        check_ranges(self, "optimizer.")
        if self.warmup_steps > 1 and self.warmup_steps % 1:
            raise BertJaxError(
                f"optimizer.warmup_steps is {self.warmup_steps:g}; give a whole number of steps, or a number below 1, "
                "a share of all steps"
            )


@dataclass(frozen=True)
class MeshConfig:
    """How devices share the work. Only `gradient_reduce_dtype` changes what is computed: it rounds gradients.

    With `shard_optimizer` a step gathers the parameters, each in the dtype in which matrix products read it, sends
    each part of a gradient to the device that holds that part of the parameter, and updates the parts. It has no effect
    on one data shard, or where XLA cannot compile it.
    """

    data: int = -1  # data-parallel replicas; -1: all devices not used by the other axes
    # number of parts that parameters and rows are split into; parameters are gathered when they are read
    fsdp: int = 1
    tensor: int = 1  # number of parts that attention heads, feed-forward and vocabulary are split into
    # split parameters and the optimizer's moments over the data-parallel replicas
    shard_optimizer: bool = False
    # dtype in which gradients are sent between devices
    gradient_reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    # add up the parts of shard_optimizer around a ring of devices, each of which sends to its two neighbours
    gradient_ring: bool = False
    # number of microbatches per step, computed in turn; more of them need less memory
    gradient_accumulation_steps: Positive = 1


@dataclass(frozen=True)
class CheckpointConfig:
    every: Positive = 1000  # number of steps between checkpoints
    keep: Positive = 3  # number of newest checkpoints to keep
    keep_every: NonNegative = 0  # number of steps between checkpoints that are never removed; 0: none
    # validation metric that selects the checkpoint to become the run's model; "": the last one is taken
    best_metric: str = ""


@dataclass(frozen=True)
class LogConfig:
    every: Positive = 100  # number of steps between lines of metrics; a short run has ten lines anyway
    evaluate_every: Positive = 10_000  # number of steps between evaluations on the validation set
    max_eval_batches: NonNegative = 0  # largest number of validation batches to evaluate; 0: all
    profile: Annotated[int, Range(-1)] = -1  # step at which a profiler trace of five steps begins; -1: none


@dataclass(frozen=True)
class RunConfig:
    task: str = "pretrain"  # what to train: the name of a task, or the path of your own module
    seed: Annotated[int, SEED_RANGE] = 0  # seed of initial values, data order, masks and dropout
    num_seeds: Positive = 1  # number of runs, with seed, seed + 1 and so on
    # values to try, in every combination: "lr=[2e-5,3e-5];batch_size=[16,32]"; in a sweep (and only there)
    # lr is short for optimizer.learning_rate and batch_size for data.batch_size; other keys are written in full
    sweep: str = ""
    steps: NonNegative = 1_000_000  # number of updates; 0: none, the run evaluates its initial parameters
    init: str = ""  # model directory to start from; "": random initial values
    from_scratch: bool = False  # use the sizes and the tokenizer of `init`, but not its parameters
    # first step of a run from `init`; 0: schedule and data start anew; N: both continue at step N
    first_step: NonNegative = 0
    # random number generator of dropout; rbg: the hardware's, faster, but its numbers depend on the mesh
    prng_impl: Literal["threefry2x32", "rbg"] = "threefry2x32"
    max_nonfinite_steps: Positive = 10  # number of non-finite updates in a row after which the run stops
    # number of evaluations without a better checkpoints.best_metric after which the run ends; 0: it never ends early
    patience: NonNegative = 0
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    adapter: AdapterConfig = field(default_factory=AdapterConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self):
        self.check_ranges()
        if self.first_step and not self.init:
            raise BertJaxError(
                f"first_step={self.first_step} needs a model directory to go on from: --config.init=DIR"
            )
        # A run of 0 steps evaluates the parameters that other runs start from.
        if self.steps >= 0 and not (self.first_step < self.steps or self.first_step == self.steps == 0):
            raise BertJaxError(f"steps must be more than {self.first_step}, not {self.steps}")
        if self.patience and not self.checkpoints.best_metric:
            raise BertJaxError("patience needs a metric; set --config.checkpoints.best_metric=METRIC")
        if self.adapter.rank and (not self.init or self.from_scratch):
            raise BertJaxError(
                "adapters change a trained model, so adapter.rank needs one to start from: --config.init=DIR"
            )
        if self.adapter.rank and (self.optimizer.frozen_layers >= 0 or self.optimizer.layer_decay < 1):
            raise BertJaxError(
                "optimizer.frozen_layers and optimizer.layer_decay are for training all parameters; leave them out "
                "beside adapter.rank"
            )

    def check_ranges(self) -> None:
        """Refuse numbers out of range in the config and in its sections."""
        check_ranges(self)
        for name, section in vars(self).items():
            if is_dataclass(section) and not isinstance(section, type):
                check_ranges(section, f"{name}.")

    # What differs between tasks; by default nothing.
    single_run_overrides: ClassVar[tuple[str, ...]] = ()  # of each run of a sweep

    @property
    def init_share(self) -> float:
        """The weight of the parameters of `init` in the final model; the rest is that of the trained ones. -1: the
        validation set chooses it."""
        return 0.0

    @property
    def batch_size(self) -> int:
        """The number of examples per step; by default the key `data.batch_size`."""
        if size := getattr(getattr(self, "data", None), "batch_size", None):
            return size
        raise BertJaxError(
            f"the config of the task {self.task} does not define `batch_size`; see run_config.py"
        )

    @property
    def writes_report(self) -> bool:
        """Whether the run ends with a report; by default what the key `report` says, if there is one."""
        return getattr(self, "report", False)

    @property
    def slow_to_open(self) -> bool:
        """Whether opening the data computes for long; `--dry-run` then calls `preview` of the task's module."""
        return False

    @property
    def example_columns(self) -> ExampleColumns | None:
        """The columns of the labelled examples; None if the run reads none."""
        return None

    @property
    def runs_without_steps(self) -> str:
        """What a run of no steps does."""
        return "the run measures and saves its initial model"

    @property
    def log_interval(self) -> int:
        """The number of steps per line of metrics.jsonl: even a short run has ten lines, or one for each step."""
        return min(self.log.every, max((self.steps - self.first_step) // FEWEST_LINES, 1))
