"""A run whose config was read and whose data are open, and its way to the training loop."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import jax

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_detail
from bert_jax.core.typed_json import type_name
from bert_jax.data.batch_source import BatchSource
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.predictions.learning_curve import OutOfFoldPredictions
from bert_jax.training import warm_start
from bert_jax.training.chips import peak_flops
from bert_jax.training.loop import train
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.step import StepCache
from bert_jax.training.task import Task

Opener = Callable[
    [RunConfig, ModelDirectories], tuple[Task, BatchSource, RunConfig]
]  # `open` of a task's module


@dataclass(frozen=True)
class OpenedRun:
    opener: Opener
    given: RunConfig  # as it was read
    task: Task
    data: BatchSource
    config: RunConfig  # with the values that follow from the data
    directories: ModelDirectories  # the model directories that it starts or learns from
    cache: StepCache | None = None  # compiled steps that it shares with other runs
    out_of_fold: OutOfFoldPredictions | None = None  # predictions for its training examples

    def reopen(self, given: RunConfig) -> "OpenedRun":
        """Open another config of the same task."""
        return open_run(self.opener, given, self.cache, self.directories)

    def train(self, workdir: Path) -> None:
        """Train in the directory of the run."""
        peak = peak_flops(jax.devices()[0].device_kind)
        train(self.task, self.data, self.config, workdir, make_params_loader(self), peak, self.cache)


def open_run(
    opener: Opener,
    given: RunConfig,
    cache: StepCache | None = None,
    directories: ModelDirectories | None = None,
) -> OpenedRun:
    directories = ModelDirectories() if directories is None else directories
    task, data, config = opener(given, directories)
    if BatchSource not in type(data).__mro__:
        raise BertJaxError(
            f"the data of the task {given.task}, {type_name(data)}, must inherit from BatchSource of "
            "bert_jax/data/batch_source.py"
        )
    return OpenedRun(opener, given, task, data, config, directories, cache)


def preview_run(
    module: ModuleType, given: RunConfig, directories: ModelDirectories | None = None
) -> OpenedRun:
    """Open a run of the task's module to look at it, without what takes long."""
    return open_run(module.preview if given.slow_to_open else module.open, given, directories=directories)


def make_params_loader(run: OpenedRun) -> Callable[[], dict] | None:
    """Return a function that returns the parameters to start from; None for plain random initial values."""
    task, data, config = run.task, run.data, run.config

    def read_from_directory() -> dict:
        params, missing = warm_start.read_initial_params(run.directories, config.init, task, config.seed)
        step = f", at step {config.first_step:,} of the schedule" if config.first_step else ""
        if jax.process_index() == 0:
            print_detail(f"starts from {config.init}{task.describe_new_params(missing)}{step}")
        return task.initial_params(params, data, config.steps)

    def compute_from_data() -> dict:
        if jax.process_count() > 1:
            raise BertJaxError(
                "only a run of one process can compute initial values from the data; run with --config.steps=0 in one "
                "process, then set --config.init to its model"
            )
        return task.initial_params(
            jax.device_get(jax.jit(lambda: init_random_params(task, config))()), data, config.steps
        )

    if config.init and not config.from_scratch:
        return read_from_directory
    return compute_from_data if task.initializes_from_data else None
