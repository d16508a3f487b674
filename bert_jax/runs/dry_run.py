"""`bert-jax train --dry-run`: what a run would do, from its config, its data and the shapes of its state.

The data are read and arranged in steps as in the run itself. Nothing is compiled, and the run is not started.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

import jax
from jax.sharding import Mesh

from bert_jax import tasks
from bert_jax.core import memory
from bert_jax.core.config_files import run_config_file
from bert_jax.core.output import refuse_unknown_files
from bert_jax.core.terminal import wrap_for_terminal
from bert_jax.data.batch_source import Fact
from bert_jax.report.prediction_page import REPORT_FILES
from bert_jax.runs.sweep import plan_runs
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.log import read_metrics
from bert_jax.training.memory_estimate import MemoryEstimate, estimate_memory
from bert_jax.training.opened_run import preview_run
from bert_jax.training.run_config import RunConfig
from bert_jax.training.run_facts import INDENT, format_fact, run_facts
from bert_jax.training.sharding import check_batch, describe_devices, make_mesh
from bert_jax.training.state import TrainState, abstract_state
from bert_jax.training.workdir import Workdir


def print_dry_run(spec: str, overrides: Sequence[str], path: str) -> None:
    """Print what the run would do; raise the error with which it would refuse to start."""
    values, directory = run_config_file(spec), Workdir(path)
    module, config = tasks.read_config(values, overrides)
    if config.writes_report:
        refuse_unknown_files(directory.report, REPORT_FILES)
    if config.num_seeds > 1 or config.sweep:
        runs = plan_runs(values, overrides, config, directory.path)
        settings = "; ".join(dict.fromkeys(run.setting for run in runs))
        print_facts(
            [("runs", f"{len(runs):,}, {config.num_seeds:,} of each setting: {settings}; the first of them:")]
        )
        config, directory = runs[0].config, Workdir(runs[0].path)
    run = preview_run(module, config)
    if not config.slow_to_open:  # else the data lack what identifies them
        run = run.task.resume(run, directory)
    task, data, config = run.task, run.data, run.config
    mesh = make_mesh(config.mesh)
    check_batch(data.rows_per_step, mesh, config.mesh.gradient_accumulation_steps)
    abstract = abstract_state(task, config, mesh)
    needed = estimate_memory(task, data, config, mesh, abstract)
    print_facts(run_facts(run, directory))
    print_facts(("", warning) for warning in task.warnings(run))
    print_facts(model_facts(abstract, config, mesh))
    print_facts(memory_facts(needed))
    print_facts(directory_facts(directory, config))
    needed.require_fit()
    print_facts([("", "nothing was compiled or written; leave --dry-run out to start the run")])


def print_facts(facts: Iterable[Fact]) -> None:
    for name, words in facts:
        print(wrap_for_terminal(format_fact((name, words)), sys.stdout, INDENT), flush=True)


def model_facts(abstract: TrainState, config: RunConfig, mesh: Mesh) -> Iterator[Fact]:
    count = sum(leaf.size for leaf in jax.tree.leaves(abstract.params))
    start = (
        f"starts from {config.init}"
        if config.init and not config.from_scratch
        else "starts from initial values"
    )
    yield "model", f"{count:,} parameters, {start}, on {describe_devices(mesh)}"


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
    timed = [
        line["time"]["hours_left"]
        for line in read_metrics(directory.metrics)
        if "hours_left" in line.get("time", {})
    ]
    time = "unknown until the run has taken some steps; its log then shows it"
    if config.steps <= max(config.first_step, 0):
        time = "not estimated, because no step is taken"
    if not directory.run.exists():
        state = "a new run"
    elif not (steps := Checkpoints(directory.checkpoints, config.checkpoints).steps()):
        state = "a run without a checkpoint, which starts over"
    elif steps[-1] >= config.steps:
        state, time = f"a run that has finished, at step {steps[-1]:,}", "none"
    else:
        state = f"a run that is resumed at step {steps[-1]:,}"
        if timed:
            time = f"{timed[-1] * 60:,.0f} min were left when the run last measured its speed"
    yield "time", time
    yield "directory", f"{directory.path}: {state}"
