"""How fast this machine multiplies matrices and moves memory."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from bert_jax.bench.timing import timed

REPEATS = 16


@dataclass(frozen=True)
class Speeds:
    flops: float  # per second
    bytes: float  # per second

    def best(self, other: "Speeds") -> "Speeds":
        return Speeds(max(self.flops, other.flops), max(self.bytes, other.bytes))


def measured_speeds(dtype: str) -> Speeds:
    return Speeds(matmul_flops_per_second(dtype), memory_bytes_per_second())


def matmul_flops_per_second(dtype: str) -> float:
    """Measure a plain matrix product with a float32 result, the fastest kind; return the best rate of several runs."""
    n = 2048 if jax.default_backend() == "cpu" else 8192

    def product(a, _):
        return jnp.matmul(a, a, preferred_element_type=jnp.float32)

    a = jnp.ones((n, n), dtype)
    return 2 * n**3 / best_seconds(product, a, jnp.ones((n, n), jnp.float32))


def memory_bytes_per_second() -> float:
    """Measure a plain pass over an array larger than any cache; return the best rate of several runs."""
    array = jnp.ones(2**26 if jax.default_backend() == "cpu" else 2**29, jnp.float32)
    return 2 * array.nbytes / best_seconds(lambda step, a: a + step, jnp.float32(1), array)


def best_seconds(function: Callable, operand, buffer) -> float:
    """Return the shortest time of `function(operand, buffer)`.

    The result is written into the memory of `buffer`, because new memory would cost page faults.
    """
    compiled = jax.jit(function, donate_argnums=1, keep_unused=True)
    seconds = []
    for _ in range(REPEATS):
        buffer, turn = timed(lambda buffer=buffer: jax.block_until_ready(compiled(operand, buffer)))
        seconds.append(turn.seconds)
    return min(seconds)
