"""The interface between a task and a run: an objective, and how its models begin, end and are described."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from bert_jax.core.errors import BertJaxError
from bert_jax.data.batch_source import BatchSource, Fact, Features
from bert_jax.data.examples.example import Example
from bert_jax.hub.adapter import TrainedAdapter
from bert_jax.hub.model_directory import save_model
from bert_jax.predictions.calibration import Calibration
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.objective import Objective, missing_member
from bert_jax.training.run_config import RunConfig
from bert_jax.training.workdir import Workdir

if TYPE_CHECKING:
    from bert_jax.training.opened_run import OpenedRun

D = TypeVar("D", bound=BatchSource)  # the data that a task learns from


@dataclass(frozen=True)
class FinishInputs:
    """The examples that a finished model is calibrated on and that its report is made from."""

    train: Sequence[Example]
    validation: Sequence[Example]
    calibration: Sequence[Example]  # () if none were set aside
    # how to read texts that are longer than the model allows
    long_texts: Literal["truncate", "windows"] = "truncate"
    out_of_scope: Sequence[Example] = ()  # examples without labels, which the model should refuse
    max_length: int = 0  # the most tokens of a text, or of each of its windows, in training


@dataclass(frozen=True)
class ModelCard:
    """The task's part of a finished model's README.md, in Markdown; facts known of any run are added to it."""

    library: str  # another library that opens the directory, or bert_jax
    pipeline: str  # Hugging Face's name for its use
    tags: Sequence[str]
    about: Sequence[str]  # what it does, how much it reads
    usage: str  # in Python; DIR is its directory
    data: Sequence[str]  # what it was trained on
    recipe: Mapping[str, str]  # settings that only this task has: name -> value, "" if there is none
    describe_calibration: Callable[[Calibration], str] | None = None  # describes its calibrated scores


@dataclass(frozen=True)
class Task(Objective, Generic[D]):
    """An objective, and what a run asks of it. Fields that do not change the compiled step are not compared."""

    finish_inputs: FinishInputs | None = field(default=None, kw_only=True, compare=False)
    model_card: ModelCard | None = field(default=None, kw_only=True, compare=False)

    @property
    def best_metric(self) -> str:
        """The validation metric by which runs of the task are compared."""
        raise missing_member(self, "best_metric")

    @property
    def initializes_from_data(self) -> bool:
        """Whether `initial_params` also changes random initial values, not only the parameters of a model directory."""
        return False

    # What happens before the run, in this order. By default nothing.

    def facts(self, run: "OpenedRun", directory: Workdir) -> Iterator[Fact]:
        """Describe what the run would do, for `--dry-run`."""
        yield from ()

    def warnings(self, run: "OpenedRun") -> Iterator[str]:
        """Name what is unusual about the data."""
        yield from ()

    def resume(self, run: "OpenedRun", directory: Workdir) -> "OpenedRun":
        """Return the run as it was started in the directory, or unchanged if none was. Refuse another run's directory;
        write nothing."""
        if directory.run.exists():
            directory.check_run(run.config, run.data)
        return run

    def prepare(self, run: "OpenedRun", directory: Workdir) -> "OpenedRun":
        """Return the run to train, after what has to be known before it, such as its method."""
        return run

    def models_before(self, run: "OpenedRun", directory: Workdir) -> Iterator[str]:
        """Describe the models that `prepare` would train, and how long they take, for `--dry-run`."""
        yield from ()

    def describe_new_params(self, names: Sequence[str]) -> str:
        """Say how the parts of the model begin that its model directory lacks."""
        return f" with random values for {', '.join(names)}" if names else ""

    def initial_params(self, params: dict, data: D, steps: int) -> dict:
        """Return the parameters for the first step, given those of a model directory, with initial values for what
        it lacks."""
        return params

    def final_params(self, params: dict, data: D) -> dict:
        """Return the parameters that a finished run keeps, given those after its last step."""
        return params

    def split_params(self, params: dict) -> dict[str, dict]:
        """Return the parameters of each model in `layouts`."""
        return {"": {name: params[name] for name in self.layout.module_names}}

    def join_params(self, models: dict[str, dict]) -> dict:
        """The inverse of `split_params`."""
        return models[""]

    def show_step(self, data: D, step: int, rows: int) -> str:
        """Show the first `rows` rows of a step, for `bert-jax inspect`; by default as the data show them."""
        return data.show_step(step, rows)


def flops_per_token(objective: Objective, config: RunConfig, rows: int, length: int) -> float:
    """Return the FLOPs of a token by the published formula; a speed counts no padding."""
    flops = objective.flops(rows, length) / (rows * length)
    return (
        flops * 2 / 3 if config.adapter.rank else flops
    )  # frozen kernels have no gradients, a third of the work


def save_models(
    directory: Path, task: Task, params: dict, tokenizer: Tokenizer, adapter: TrainedAdapter | None = None
) -> None:
    """Save the main model in the directory, and the other models in its subdirectories."""
    for name, model in task.split_params(params).items():
        save_model(directory / name, task.layouts[name], model, tokenizer, adapter=adapter)


@dataclass(frozen=True)
class OutlinePhase:
    """Steps whose batches have the same shape."""

    length: int  # tokens per row
    share: float  # of all steps
    features: Features


@dataclass(frozen=True)
class Outline:
    task: Task
    config: RunConfig
    batch: int  # examples per step
    rows: int  # per step
    phases: tuple[OutlinePhase, ...]
    steps: int  # of the run; 0: unknown without its data


def make_outline(task: Task, data: BatchSource, config: RunConfig) -> Outline:
    """Return the outline of a run whose data are open, with a phase for each length of its rows."""
    if not config.steps:
        raise BertJaxError(
            "the run takes no steps, so nothing is compiled; leave --config.steps=0 and --config.method=linear_probe "
            "out"
        )
    lengths = [data.row_length(step) for step in range(config.steps)]
    phases = []
    for length, count in sorted(Counter(lengths).items()):
        phases.append(OutlinePhase(length, count / config.steps, data.features(lengths.index(length))))
    return Outline(task, config, config.batch_size, data.rows_per_step, tuple(phases), config.steps)
