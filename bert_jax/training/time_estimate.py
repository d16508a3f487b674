"""How long the steps of a run take, measured by a few of them."""

import os
import time
from collections import Counter
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from bert_jax.training.chips import PEAKS
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.sharding import local_data_shard, place_batches
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import make_step

SECONDS = 60.0  # steps that may take longer than this are not measured
TAKEN = 3  # steps, of which the first compiles and is not counted
# FLOP/s that a step has at least: of a core, and of an accelerator as a share of its peak, or if that is unknown.
CORE, SHARE, ACCELERATOR = 30e9, 0.2, 10e12


class StepTime(NamedTuple):
    step: float  # seconds of a step with rows of the most frequent length
    all_steps: float  # seconds


def measure_steps(run: OpenedRun, mesh: Mesh, first: int = 0) -> StepTime | None:
    """Return how long a step takes, and those from step `first` to the end; None if that would take long to measure."""
    task, data, config = run.task, run.data, run.config
    lengths = Counter(data.row_length(step) for step in range(first, config.steps))
    flops = {length: task.flops(data.rows_per_step, length) for length in lengths}
    ((length, _),) = lengths.most_common(1)
    if TAKEN * flops[length] > SECONDS * assumed_speed(mesh):
        return None
    start = next(step for step in range(first, config.steps) if data.row_length(step) == length)
    batches = data.batches(start, start + 1, *local_data_shard(mesh, data.rows_per_step))
    (batch,) = place_batches(batches, mesh, data.rows_per_step)
    state, constants = initial_state(task, config, mesh), make_constants(task, config, mesh)
    take_step = run.cache.get_or_make(task, config, mesh)[0] if run.cache else make_step(task, config, mesh)
    begun = 0.0
    for number in range(TAKEN):
        if number == 1:
            begun = time.perf_counter()
        state, measured = take_step(state, batch, constants)
        jax.block_until_ready(measured)
    seconds = (time.perf_counter() - begun) / (TAKEN - 1)
    computed = sum(count * flops[other] for other, count in lengths.items())
    return StepTime(seconds, seconds * computed / flops[length])


def assumed_speed(mesh: Mesh) -> float:
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return CORE * (os.cpu_count() or 1)
    return SHARE * PEAKS.get(device.device_kind, ACCELERATOR / SHARE) * mesh.size
