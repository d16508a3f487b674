"""What an open run says of itself: in the first lines of its log, and for `bert-jax train --dry-run`."""

from collections import Counter
from collections.abc import Iterator

from bert_jax.core.terminal import RUN_PREFIX
from bert_jax.data.batch_source import BatchSource, Fact
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.processes import print_notice, print_once
from bert_jax.training.run_config import RunConfig
from bert_jax.training.workdir import Workdir

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
    """Print the facts of a run, and what is unusual about its data."""
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
