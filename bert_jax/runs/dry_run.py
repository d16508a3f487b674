"""`bert-jax train --dry-run`: what a run would do, from its config, its data and the shapes of its state.

The data are read and arranged in steps as in the run itself. A few steps are timed, but the run is not started.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

from jax.sharding import Mesh

from bert_jax import tasks
from bert_jax.core import memory
from bert_jax.core.config_files import run_config_file
from bert_jax.core.progress import format_duration
from bert_jax.core.terminal import pluralize, wrap_for_terminal
from bert_jax.data.batch_source import Fact
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.report.prediction_page import REPORT_FILES
from bert_jax.runs.sweep import plan_runs, refuse_other_runs
from bert_jax.training.checkpoint import CheckpointFolder
from bert_jax.training.log import read_metrics
from bert_jax.training.memory_estimate import MemoryEstimate, estimate_memory
from bert_jax.training.opened_run import INDENT, OpenedRun, format_fact, preview_run, run_facts
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import (
    check_batch,
    describe_devices,
    make_mesh,
    mesh_warnings,
)
from bert_jax.training.state import (
    TrainState,
    abstract_state,
    count_parameters,
)
from bert_jax.training.time_estimate import StepTime, measure_steps
from bert_jax.training.warm_start import list_new_modules
from bert_jax.training.workdir import Workdir


def print_dry_run(spec: str, overrides: Sequence[str], path: str) -> None:
    """Print what the run would do; raise the error with which it would refuse to start."""
    values, directory = run_config_file(spec), Workdir(path)
    directories = ModelDirectories()
    module, config = tasks.read_config(values, overrides, directories)
    if config.writes_report:
        directory.refuse_replacing(directory.report, REPORT_FILES)
    count = 1
    if config.num_seeds > 1 or config.sweep:
        runs = plan_runs(values, overrides, config, directory.path)
        refuse_other_runs(directory, runs)
        settings = "; ".join(dict.fromkeys(run.setting for run in runs))
        print_facts(
            [("runs", f"{len(runs):,}, {config.num_seeds:,} of each setting: {settings}; the first of them:")]
        )
        config, directory, count = runs[0].config, Workdir(runs[0].path), len(runs)
    run = preview_run(module, config, directories)
    if not config.slow_to_open:  # else the data lack what identifies them
        run = run.task.resume(run, directory)
    task, data, config = run.task, run.data, run.config
    mesh = make_mesh(config.mesh)
    check_batch(data.rows_per_step, mesh, config.mesh.gradient_accumulation_steps)
    abstract = abstract_state(task, config, mesh)
    needed = estimate_memory(task, data, config, mesh, abstract)
    print_facts(run_facts(run, directory))
    print_facts(("", warning) for warning in [*task.warnings(run), *mesh_warnings(config.mesh, mesh)])
    print_facts(model_facts(abstract, run, mesh))
    print_facts(memory_facts(needed))
    print_facts(directory_facts(directory, config))
    needed.require_fit()
    print_facts([("time", estimate_time(run, directory, mesh, count))])
    print_facts([("", "nothing was written; leave --dry-run out to start the run")])


def print_facts(facts: Iterable[Fact]) -> None:
    for name, words in facts:
        print(wrap_for_terminal(format_fact((name, words)), sys.stdout, INDENT), flush=True)


def model_facts(abstract: TrainState, run: OpenedRun, mesh: Mesh) -> Iterator[Fact]:
    init, start = run.config.init, "starts from initial values"
    if init and not run.config.from_scratch:
        new = list_new_modules(run.directories[init], run.task.layout)
        start = f"starts from {init}{run.task.describe_new_params(new)}"
    count = count_parameters(abstract.params, run.task, run.config, mesh)
    yield "model", f"{count.removesuffix(',')}, {start}, on {describe_devices(mesh)}"


def memory_facts(needed: MemoryEstimate) -> Iterator[Fact]:
    free = memory.free_bytes(needed.device)
    parts = (needed.total_bytes, needed.state * needed.devices, needed.activations * needed.devices)
    total, state, activations = map(format_bytes, parts)
    beside = "" if free is None else f"; {format_bytes(free)} are free"
    yield (
        "memory",
        f"about {total}: {state} for parameters, gradients and optimizer, {activations} for activations{beside}",
    )


def format_bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def directory_facts(directory: Workdir, config: RunConfig) -> Iterator[Fact]:
    steps = saved_steps(directory)
    if not directory.run.exists():
        state = "a new run"
    elif not steps:
        state = "a run without a checkpoint, which starts over"
    elif steps[-1] >= config.steps:
        state = f"a run that has finished, at step {steps[-1]:,}"
    else:
        state = f"a run that is resumed at step {steps[-1]:,}"
    yield "directory", f"{directory.path}: {state}"


def saved_steps(directory: Workdir) -> list[int]:
    return CheckpointFolder(directory.checkpoints).steps() if directory.run.exists() else []


def estimate_time(run: OpenedRun, directory: Workdir, mesh: Mesh, count: int) -> str:
    """Say how long the run will take, or a sweep of `count` runs; what is not known yet is measured."""
    config = run.config
    first = max([config.first_step, *saved_steps(directory)])
    if config.steps <= first:
        return "none" if first > config.first_step else "not estimated, because no step is taken"
    if config.slow_to_open:
        return "unknown until the run has taken some steps; its log then shows it"
    timed = [line["time"] for line in read_metrics(directory.metrics) if "hours_left" in line.get("time", {})]
    if first > config.first_step and timed and not directory.raises_steps(config):
        left = format_duration(3600 * timed[-1]["hours_left"])
        return f"{left} were left when the run last measured its speed"
    if (measured := measure_steps(run, mesh, first)) is None:
        return (
            "not measured, because a few steps may take more than a minute here; the log of the run shows it"
        )
    return describe_time(config.steps - first, measured, list(run.task.models_before(run, directory)), count)


def describe_time(steps: int, measured: StepTime, before: Sequence[str], count: int) -> str:
    """Describe the time of the steps, the models that are trained `before` them, and the time of `count` such runs.

    >>> describe_time(1200, StepTime(0.42, 504), ["before them 5 fold models, about 25 min"], 1)
    'a step takes 0.42 s here, so 1,200 steps take about 8 min; before them 5 fold models, about 25 min; ...'
    """
    seconds, parts = measured.all_steps, [f"a step takes {measured.step:.3g} s here, so"]
    parts[0] += f" {pluralize(steps, 'step')} take about {format_duration(max(seconds, 1))}"
    if count > 1:
        parts.append(f"all {count:,} runs about {format_duration(count * seconds)}")
    return "; ".join([*parts, *before, "compiling and validation are not counted"])
