"""How fast this machine multiplies and moves."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from bert_jax.bench.turns import timed

REPEATS = 16


@dataclass(frozen=True)
class Speeds:
    flops: float  # per second
    bytes: float

    def best(self, other: "Speeds") -> "Speeds":
        return Speeds(max(self.flops, other.flops), max(self.bytes, other.bytes))


def measured_speeds(dtype: str) -> Speeds:
    return Speeds(matmul_flops_per_second(dtype), memory_bytes_per_second())


def matmul_flops_per_second(dtype: str) -> float:
    """Of a plain matrix product with a float32 result, which is the fastest, the best of a few."""
    n = 2048 if jax.default_backend() == "cpu" else 8192

    def product(a, _):
        return jnp.matmul(a, a, preferred_element_type=jnp.float32)

    a = jnp.ones((n, n), dtype)
    return 2 * n**3 / best_seconds(product, a, jnp.ones((n, n), jnp.float32))


def memory_bytes_per_second() -> float:
    """Of a plain pass over an array larger than any cache, the best of a few."""
    array = jnp.ones(2**26 if jax.default_backend() == "cpu" else 2**29, jnp.float32)
    return 2 * array.nbytes / best_seconds(lambda step, a: a + step, jnp.float32(1), array)


def best_seconds(function: Callable, operand, place) -> float:
    """Of `function(operand, place)`, which writes where `place` was: new memory would cost its page faults."""
    compiled = jax.jit(function, donate_argnums=1, keep_unused=True)
    seconds = []
    for _ in range(REPEATS):
        place, turn = timed(lambda place=place: jax.block_until_ready(compiled(operand, place)))
        seconds.append(turn.seconds)
    return min(seconds)
