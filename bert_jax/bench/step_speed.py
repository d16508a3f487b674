"""`bert-jax bench train`: time a training step of a config on made-up rows without padding, so that every token counts.

Rows have the shapes that the run's batches would have. FLOPs are those of models/cost.py.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import tasks
from bert_jax.bench.timing import (
    Figures,
    Machine,
    MeasuredTurns,
    Turn,
    open_profile,
    timed,
    timed_rounds,
    trace_calls,
)
from bert_jax.data.batch_source import Features
from bert_jax.training.chips import PEAKS
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import make_step
from bert_jax.training.task import Outline, OutlinePhase

PRODUCTS = 16  # matrix products that are timed


def synthetic_batch(features: Features, vocab_size: int) -> dict[str, np.ndarray]:
    """Make a batch of full rows: random words, rows divided evenly into their texts, weights of 1, labels of 0."""
    random, (_, length), batch = np.random.default_rng(0), features["input_ids"][0], {}
    for name, (shape, dtype) in features.items():
        value: np.ndarray | bool
        match name:
            case "input_ids" | "targets":
                value = random.integers(min(1000, vocab_size // 2), vocab_size, shape)
            case "segment_ids":
                value = 1 + np.arange(length) * features["cls_positions"][0][1] // length
            case "cls_positions" | "target_positions":
                value = -(-np.arange(shape[1]) * length // shape[1])
            case _:
                value = name == "attention_mask" or bool(np.issubdtype(dtype, np.floating))
        batch[name] = np.broadcast_to(value, shape).astype(dtype)
    return batch


class Step:
    """A step of a config, compiled ahead of its first call."""

    def __init__(self, outline: Outline, phase: OutlinePhase):
        task, config, mesh = outline.task, outline.config, make_mesh(outline.config.mesh)
        self.outline, self.phase = outline, phase
        self.batch = synthetic_batch(phase.features, task.layout.config.vocab_size)
        self.state = initial_state(task, config, mesh)
        self.constants = make_constants(task, config, mesh)
        lowered = make_step(task, config, mesh).lower(self.state, self.batch, self.constants)
        self.step, self.compilation = timed(lowered.compile)

    def take(self) -> None:
        self.state, measured = self.step(self.state, self.batch, self.constants)
        jax.block_until_ready(measured)

    def figures(self, turns: Sequence[Turn], matmul_flops: float) -> Figures:
        seconds = float(np.median([turn.seconds for turn in turns]))
        rows, length = self.batch["input_ids"].shape
        speed = self.outline.task.flops(rows, length) / jax.device_count() / seconds
        memory, peak = self.step.memory_analysis(), PEAKS.get(jax.devices()[0].device_kind)
        return {
            "seconds": seconds,
            "cpu_seconds": float(np.median([turn.cpu for turn in turns])),
            "examples_per_second": self.outline.batch / seconds,
            "tokens_per_second": rows * length / seconds,
            "gflops_per_second_and_device": speed / 1e9,
            "percent_of_a_matrix_product": 100 * speed / matmul_flops,
            "percent_of_the_peak": 100 * speed / peak if peak else None,
            "compile_seconds": self.compilation.seconds,
            "temporary_gigabytes": memory.temp_size_in_bytes / 1e9 if memory else None,
        }


def matmul_flops_per_second(dtype: str) -> float:
    """Measure a plain matrix product with a float32 result, the fastest kind; return the best rate of several runs."""
    n = 2048 if jax.default_backend() == "cpu" else 8192
    # The result is written into memory that is there, because new memory would cost page faults.
    product = jax.jit(
        lambda a, _: jnp.matmul(a, a, preferred_element_type=jnp.float32), donate_argnums=1, keep_unused=True
    )
    a, out, seconds = jnp.ones((n, n), dtype), jnp.ones((n, n), jnp.float32), []
    for _ in range(PRODUCTS):
        out, turn = timed(lambda out=out: jax.block_until_ready(product(a, out)))
        seconds.append(turn.seconds)
    return 2 * n**3 / min(seconds)


def measure_steps(
    spec: str, overrides: Sequence[str], profile: str | None = None, as_json: bool = False
) -> str:
    """Time a step for each length of the rows; trace some, too, if there is a directory for it."""
    traces = open_profile(profile) if profile else None
    outline, machine = tasks.outline_run(tasks.load_config(spec, overrides)[1]), Machine()
    dtype = outline.task.layout.config.computed_dtype
    matmul_flops = matmul_flops_per_second(dtype)
    figures, turns = dict[str, Figures](), list[Turn]()
    for phase in outline.phases:
        step = Step(outline, phase)
        step.take()
        turns += (taken := timed_rounds(step.take))
        figures[f"{outline.rows} x {phase.length}"] = step.figures(taken, matmul_flops)
        if traces:
            trace_calls(step.take, traces / str(phase.length))
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    title = f"a step of {spec} in {dtype} on {devices}, rows x tokens"
    return MeasuredTurns(title, figures, machine.load_during(turns)).shown(as_json)
