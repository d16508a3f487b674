"""A run whose config was read and whose data are open, and its way to the training loop."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

import jax

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import RUN_PREFIX, print_detail
from bert_jax.core.typed_json import type_name
from bert_jax.data.batch_source import BatchSource, Fact
from bert_jax.hub.adapter_targets import FROZEN_MODULES
from bert_jax.hub.model_directory import ModelDirectories, ModelDirectory
from bert_jax.predictions.learning_curve import OutOfFoldPredictions
from bert_jax.training import warm_start
from bert_jax.training.loop import train
from bert_jax.training.processes import print_notice, print_once
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.step import StepCache
from bert_jax.training.task import Task
from bert_jax.training.workdir import Workdir

T = TypeVar("T", bound=Task, covariant=True)
C = TypeVar("C", bound=RunConfig)
R = TypeVar("R")
Opener = Callable[[C, ModelDirectories], tuple[T, BatchSource, C]]  # `open` of a task's module


@dataclass(frozen=True)
class OpenedRun(Generic[T, C]):
    opener: Opener[C, T]
    given: C  # as it was read
    task: T
    data: BatchSource
    config: C  # with the values that follow from the data
    directories: ModelDirectories  # the model directories that it starts or learns from
    cache: StepCache | None = None  # compiled steps that it shares with other runs
    out_of_fold: OutOfFoldPredictions | None = None  # predictions for its training examples

    def reopen(self, given: C) -> "OpenedRun[T, C]":
        """Open another config of the same task."""
        return open_run(self.opener, given, self.cache, self.directories)

    def train(self, workdir: Path, complete: Callable[[Path], R] | None = None) -> R | None:
        """Train in a run directory; `complete` is that of `training.loop.train`."""
        params = make_params_loader(self)
        return train(self.task, self.data, self.config, workdir, params, self.cache, complete)


def open_run(
    opener: Opener[C, T],
    given: C,
    cache: StepCache | None = None,
    directories: ModelDirectories | None = None,
) -> OpenedRun[T, C]:
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
        if config.adapter.rank:
            check_start(run.directories[config.init], missing)
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


def check_start(directory: ModelDirectory, missing: Sequence[str]) -> None:
    """Refuse to train adapters on a model that their files could not name, or whose frozen parts would be random."""
    if directory.base:
        raise BertJaxError(
            f"{directory} is an adapter; write it as a whole model for a new adapter to start from: bert-jax export "
            f"{directory} --format hf --output DIR"
        )
    if lost := [name for name in missing if name in FROZEN_MODULES]:
        raise BertJaxError(
            f'{directory} has no head "{lost[0]}", which adapters leave as it is; leave --config.adapter.rank out'
        )


INDENT = 12  # width of the column of names, in characters


def run_facts(run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
    """Describe the data, what the task makes of them, and the steps."""
    yield from run.data.facts()
    yield from run.task.facts(run, directory)
    yield from step_facts(run.data, run.config)


def format_fact(fact: Fact) -> str:
    name, words = fact
    return f"{name:<{INDENT}}{words}"


def print_description(run: OpenedRun, directory: Workdir) -> None:
    if not RUN_PREFIX.get():  # which the parts of a larger run would repeat
        for fact in run_facts(run, directory):
            print_once(format_fact(fact))
    for warning in run.task.warnings(run):
        print_notice(warning)


def step_facts(data: BatchSource, config: RunConfig) -> Iterator[Fact]:
    """Yield the examples, rows and tokens of a step, the number of steps, and how often the data are seen."""
    first = config.first_step
    if config.steps <= first:
        yield "steps", f"none: {config.runs_without_steps}"
        return
    lengths = Counter(data.row_length(step) for step in range(first, config.steps))
    # of all steps
    tokens = float(data.rows_per_step * sum(length * count for length, count in lengths.items()))
    step = f"{data.rows_per_step:,} rows of {' or '.join(f'{length:,}' for length in sorted(lengths))} tokens"
    if examples := data.describe_examples():
        step = f"{examples} in {step}"
    padding, counted = data.padding(), "padding counted"
    if padding is not None:
        tokens, counted = tokens * (1 - padding), "padding not counted"
    yield "step", f"{step}; {tokens / (config.steps - first):,.0f} tokens on average, {counted}"
    passes = data.describe_passes(config.steps, tokens)
    every = {"a validation": config.log.evaluate_every} if data.has_validation else {}
    every |= {"a checkpoint": config.checkpoints.every}
    told = (
        f"{what} every {steps:,}" if steps < config.steps else f"{what} at the end"
        for what, steps in every.items()
    )
    yield "steps", f"{config.steps - first:,}{passes}; {', '.join(told)}"
