"""An outline of a run: what its steps compute, known before there is a device to run them."""

from collections import Counter
from dataclasses import dataclass

from bert_jax.core.errors import BertJaxError
from bert_jax.data.batch_source import BatchSource, Features
from bert_jax.training.run_config import RunConfig
from bert_jax.training.task import Task


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
