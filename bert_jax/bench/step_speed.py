"""`bert-jax bench train`: time a training step of a config on made-up rows without padding, so that every token counts.

Rows have the shapes that the run's batches would have. FLOPs are those of models/cost.py.
"""

from collections.abc import Sequence

import jax
import numpy as np

from bert_jax import tasks
from bert_jax.bench.profile import name_operations, profile
from bert_jax.bench.speeds import matmul_flops_per_second
from bert_jax.bench.timing import Figures, Machine, Measured, Turn, timed, timed_rounds
from bert_jax.core.errors import BertJaxError
from bert_jax.data.batch_source import Features
from bert_jax.training.chips import peak_flops
from bert_jax.training.outline import Outline, OutlinePhase
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import make_step


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
        memory, peak = self.step.memory_analysis(), peak_flops(jax.devices()[0].device_kind)
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


def open_outline(spec: str, overrides: Sequence[str]) -> Outline:
    return tasks.outline_run(tasks.load_config(spec, overrides)[1])


def measure_steps(spec: str, overrides: Sequence[str], as_json: bool = False) -> str:
    """Time a step for each length of the rows."""
    outline, machine = open_outline(spec, overrides), Machine()
    dtype = outline.task.layout.config.computed_dtype
    matmul_flops = matmul_flops_per_second(dtype)
    figures, turns = dict[str, Figures](), list[Turn]()
    for phase in outline.phases:
        figures[f"{outline.rows} x {phase.length}"], taken = step_figures(outline, phase, matmul_flops)
        turns += taken
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    title = f"a step of {spec} in {dtype} on {devices}, rows x tokens"
    return Measured(title, figures, machine.load_during(turns)).shown(as_json)


def step_figures(outline: Outline, phase: OutlinePhase, matmul_flops: float) -> tuple[Figures, list[Turn]]:
    """Return the figures of a step, and the turns that they come from."""
    step = Step(outline, phase)
    step.take()
    turns = timed_rounds(step.take)
    return step.figures(turns, matmul_flops), turns


def profile_step(spec: str, overrides: Sequence[str], picture: str, as_json: bool) -> str:
    """Show where the time of a step goes: as a picture, and as text or JSON."""
    name_operations()
    outline = open_outline(spec, overrides)
    if len(outline.phases) > 1:
        lengths = ", ".join(str(phase.length) for phase in outline.phases)
        raise BertJaxError(
            f"--profile draws steps of one length, and the run has {lengths}; set --config.data.lengths=N "
            "--config.data.length_ratios=1"
        )
    step = Step(outline, outline.phases[0])
    title = f"a step of {spec}, {outline.rows} x {outline.phases[0].length}"
    dtype = outline.task.layout.config.computed_dtype
    return profile(title, step.take, dtype).shown(picture, as_json)
