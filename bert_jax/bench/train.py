"""`bert-jax bench train`: what a pre-training step costs here, on synthetic batches, and beside torch's.

FLOPs are those of models/cost.py. Steps are timed one by one; two programs that are compared take turns, so that a
machine whose speed drifts treats both alike, and what is printed is the median of the ratios of neighbours.
"""

import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.corpus.config import DataConfig, Examples
from bert_jax.errors import BertJaxError
from bert_jax.models.config import EncoderConfig
from bert_jax.models.cost import pre_training_flops
from bert_jax.pod import program
from bert_jax.pod.chips import peak_of
from bert_jax.tasks.pretrain import Config, Pretraining
from bert_jax.train.config import MeshConfig, OptimizerConfig
from bert_jax.train.sharding import make_mesh
from bert_jax.train.state import initial_state
from bert_jax.train.step import make_step


@dataclass(frozen=True)
class Shape:
    """The step that is measured."""

    size: str = "base"
    batch: int = 8
    length: int = 128
    dtype: str = "float32"
    attention: str = "auto"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    packs: int = 1
    accumulate: int = 1
    remat: str = "none"

    def config(self) -> Config:
        model = EncoderConfig.named(
            self.size,
            max_positions=max(512, self.length),
            dtype=self.dtype,
            attention=self.attention,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            remat=self.remat,
        )
        examples: Examples = "full_sentences" if self.packs > 1 else "next_sentence"
        data = DataConfig(
            batch=self.batch, lengths=(self.length,), shares=(1.0,), examples=examples, packs=self.packs
        )
        mesh = MeshConfig(accumulate=self.accumulate)
        return Config(model=model, data=data, mesh=mesh, optimizer=OptimizerConfig(warmup=1))


def synthetic_batch(shape: Shape, vocab_size: int) -> dict[str, np.ndarray]:
    """Random words without padding: every token counts."""
    random = np.random.default_rng(0)
    B, L = shape.batch, shape.length
    K = DataConfig().targets(L)
    batch = {
        "tokens": random.integers(1000, vocab_size, (B, L)),
        "segments": np.repeat([[0, 1]], L // 2, axis=1).repeat(B, axis=0),
        "mask": np.ones((B, L)),
        "target_positions": np.sort(random.permuted(np.tile(np.arange(L), (B, 1)), axis=1)[:, :K]),
        "targets": random.integers(1000, vocab_size, (B, K)),
    }
    if shape.packs > 1:
        begins = np.arange(shape.packs) * (L // shape.packs)
        batch["packs"] = np.tile(np.searchsorted(begins, np.arange(L), side="right"), (B, 1))
        batch["cls_positions"] = np.tile(begins, (B, 1))
        batch["segments"] = np.zeros((B, L))
    else:
        batch["labels"] = random.integers(0, 2, B)
    batch = {name: value.astype(np.int32) for name, value in batch.items()}
    batch["target_weight"] = np.ones((B, K), np.float32)
    if shape.packs == 1:
        batch["weight"] = np.ones(B, np.float32)
    return batch


class OurStep:
    """Our step, compiled; each call takes one step and waits for it."""

    def __init__(self, shape: Shape):
        config = shape.config()
        task, mesh = Pretraining.of(config), make_mesh(config.mesh)
        self.batch = synthetic_batch(shape, config.model.vocab_size)
        self.state = initial_state(task, config, mesh)
        lowered = make_step(task, config, mesh).lower(self.state, self.batch)
        begun = time.perf_counter()
        self.step = lowered.compile()
        self.compile_seconds = time.perf_counter() - begun
        memory = self.step.memory_analysis()
        self.temporary_bytes = memory.temp_size_in_bytes if memory else None

    def __call__(self) -> None:
        self.state, measured = self.step(self.state, self.batch)
        jax.block_until_ready(measured)


def seconds(run: Callable[[], None]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def in_turn(ours: Callable, theirs: Callable, rounds: int) -> tuple[list[float], list[float]]:
    """Times of both, taken alternately after one unmeasured call of each."""
    ours(), theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def matmul_ceiling(dtype: str) -> float:
    """FLOP/s of a plain matrix product here, the best of a few."""
    n = 2048 if jax.default_backend() == "cpu" else 8192
    a = jnp.ones((n, n), dtype)
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    return 2 * n**3 / min(seconds(lambda: product(a).block_until_ready()) for _ in range(8))


def memory_speed() -> float:
    """Bytes a second of a plain pass over an array larger than any cache, the best of a few."""
    a = jnp.ones(2**26, jnp.float32)
    passed = jax.jit(lambda a: a + 1)
    passed(a).block_until_ready()
    return 2 * a.nbytes / min(seconds(lambda: passed(a).block_until_ready()) for _ in range(8))


def report(shape: Shape, steps: int, against: str | None, as_json: bool) -> str:
    if against not in (None, "torch"):
        raise BertJaxError(f'nothing to compare with called "{against}"; only "torch"')
    device = jax.devices()[0]
    ours = OurStep(shape)
    ours()
    times = [seconds(ours) for _ in range(steps)]
    median, ceiling, peak = float(np.median(times)), matmul_ceiling(shape.dtype), peak_of(device.device_kind)
    flops = pre_training_flops(
        shape.config().model, shape.batch, shape.length, ours.batch["targets"].shape[1]
    )
    rate = flops / median / jax.device_count()
    # As preflight predicts for a slice: the products, and what the compiled program moves, one after the other.
    moved = program.read(ours.step.as_text() or "").traffic
    bound = flops / jax.device_count() / ceiling + moved / memory_speed()
    found: dict[str, Any] = {
        "device": f"{jax.device_count()} x {device.device_kind}",
        "step": vars(shape),
        "compile_seconds": ours.compile_seconds,
        "temporary_bytes": ours.temporary_bytes,
        "seconds": median,
        "sequences_per_second": shape.batch * shape.packs / median,
        "tokens_per_second": int(ours.batch["mask"].sum()) / median,
        "flops_per_step": flops,
        "flops_per_second": rate,
        "share_of_peak": rate / peak if peak else None,
        "share_of_matmul": rate / ceiling,
        "matmul_flops_per_second": ceiling,
        "bytes_per_step": moved,
        "predicted_seconds": bound,
    }
    if against:
        from bert_jax.bench.torch_step import VARIANTS, TorchStep

        found["against"] = {}
        for variant in VARIANTS:
            theirs = TorchStep(shape, ours.batch, **vars(variant))
            a, b = in_turn(ours, theirs, steps)
            found["against"][str(variant)] = {
                "seconds": float(np.median(b)),
                "speedup": float(np.median(np.divide(b, a))),
                "speedup_min": float(np.min(np.divide(b, a))),
                "speedup_max": float(np.max(np.divide(b, a))),
            }
            del theirs
            gc.collect()
    return json.dumps(found) if as_json else text(found, shape)


def text(found: dict, shape: Shape) -> str:
    of_peak = (
        "no published peak" if found["share_of_peak"] is None else f"{found['share_of_peak']:.1%} of the peak"
    )
    bytes_ = found["temporary_bytes"]
    memory = f", {bytes_ / 2**30:.2f} GiB of temporaries" if bytes_ else ""
    lines = [
        f"{shape.size}, {shape.batch} x {shape.length}, {shape.dtype}, attention {shape.attention}, dropout "
        f"{shape.dropout} and {shape.attention_dropout}, on {found['device']}",
        f"compile    {found['compile_seconds']:.1f} s{memory}",
        f"step       {found['seconds']:.4f} s, {1 / found['seconds']:.2f} steps/s",
        f"rows       {found['sequences_per_second']:,.1f} sequences/s, {found['tokens_per_second']:,.0f} real tokens/s",
        f"FLOP/s     {found['flops_per_second'] / 1e9:,.0f} G a device: {of_peak}, {found['share_of_matmul']:.1%} "
        f"of a plain matrix product's {found['matmul_flops_per_second'] / 1e9:,.0f} G",
        f"predicted  {found['predicted_seconds']:.4f} s, the products at that rate and then "
        f"{found['bytes_per_step'] / 1e9:.2f} GB through memory; measured is "
        f"{found['seconds'] / found['predicted_seconds']:.2f} times that",
    ]
    for name, other in found.get("against", {}).items():
        lines.append(
            f"torch      {name}: {other['seconds']:.4f} s; ours is {other['speedup']:.2f}x as fast "
            f"({other['speedup_min']:.2f} to {other['speedup_max']:.2f})"
        )
    return "\n".join(lines)
