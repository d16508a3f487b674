"""What every training config may say, whatever its task: the published pre-training numbers are the defaults."""

from dataclasses import dataclass, field
from typing import Literal

from bert_jax.errors import BertJaxError


@dataclass(frozen=True)
class OptimizerConfig:
    name: Literal["adam", "lamb"] = "adam"
    rate: float = 1e-4  # at its peak
    schedule: Literal["linear", "cosine", "warmup_stable_decay"] = "linear"
    warmup: int = 10_000  # steps
    warmup_share: float = 0.0  # of all steps, in place of `warmup`
    decay_share: float = 0.1  # of all steps, at the end of warmup_stable_decay
    weight_decay: float = 0.01  # decoupled; not of biases and LayerNorm
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    clip: float = 1.0  # the gradient's norm at most; 0: not clipped
    layer_decay: float = 1.0  # a layer's rate is that of the one above it times this
    frozen_layers: int = -1  # 0: the embeddings keep their values, N: and so do the first N layers

    def warmup_of(self, steps: int) -> int:
        """The steps of the warm-up of so many."""
        return round(self.warmup_share * steps) or self.warmup

    def __post_init__(self):
        for name in ("rate", "warmup", "weight_decay", "clip"):
            if getattr(self, name) < 0:
                raise BertJaxError(f"optimizer.{name} must be 0 or more, not {getattr(self, name)}")
        for name in ("beta1", "beta2", "decay_share", "warmup_share", "layer_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise BertJaxError(f"optimizer.{name} must be between 0 and 1, not {getattr(self, name)}")


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
    accumulate: int = 1  # microbatches a step; their gradients are summed on each device and reduced once


@dataclass(frozen=True)
class CheckpointConfig:
    every: int = 1000  # steps
    keep: int = 3  # of the newest
    keep_every: int = 0  # steps; these stay for good
    best: str = ""  # a held-out metric such as mlm_loss; the best one's checkpoint stays, the run's model


@dataclass(frozen=True)
class LogConfig:
    every: int = 100  # steps in one line of metrics.jsonl
    evaluate_every: int = 10_000  # steps
    evaluate_batches: int = 0  # of the held-out part at most; 0: all of it
    profile: int = -1  # the step at which a profiler trace of five steps begins


@dataclass(frozen=True)
class RunConfig:
    task: str = "pretrain"
    seed: int = 0
    seeds: int = 1  # runs, by seed, seed + 1 and so on
    sweep: str = ""  # and by settings: "lr=[2e-5,3e-5];batch=[16,32]", every one with every other
    steps: int = 1_000_000
    init: str = ""  # a model directory to go on from
    scratch: bool = False  # of `init` only the sizes and the tokenizer, not the parameters
    # The step that a run from `init` begins with: 0 restarts schedule and data, N goes on with both at N.
    first_step: int = -1
    random: Literal["threefry2x32", "rbg"] = (
        "threefry2x32"  # rbg: the hardware's, faster, other draws on another mesh
    )
    bad_steps: int = 10  # updates in a row that are not finite stop the run
    patience: int = (
        0  # evaluations without a better checkpoints.best end the run; 0: it goes to its last step
    )
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self):
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
        for name, value in {"mesh.accumulate": self.mesh.accumulate, "checkpoints.every": self.checkpoints.every,
                            "checkpoints.keep": self.checkpoints.keep, "log.every": self.log.every,
                            "log.evaluate_every": self.log.evaluate_every,
                            "bad_steps": self.bad_steps}.items():  # fmt: skip
            if value < 1:
                raise BertJaxError(f"{name} must be 1 or more, not {value}")
