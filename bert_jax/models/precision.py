"""The type of number that a device computes fastest with."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

AMPERE = 8.0  # compute capability of the first NVIDIA GPUs with products in bfloat16
SIZE = 768  # rows and columns of the timed matrices; a product takes some milliseconds
REPEATS = 7
MARGIN = 1.2  # a smaller speed-up is not worth the rounding


@cache
def fast_dtype(platform: str) -> str:
    """Return "bfloat16" if the device multiplies it faster than float32, otherwise "float32".

    Several processes on CPUs always use "float32": each would time its own processor, but all must run one program.
    """
    if platform == "cpu" and jax.process_count() > 1:
        fast = False
    elif platform == "cpu":
        # In its own thread, because the caller may be tracing a program, possibly for other devices.
        with ThreadPoolExecutor(1) as thread:
            fast = thread.submit(cpu_gain).result() > MARGIN
    elif platform == "tpu":
        fast = True
    else:
        fast = float(getattr(jax.devices()[0], "compute_capability", 0)) >= AMPERE
    return "bfloat16" if fast else "float32"


def cpu_gain() -> float:
    """Return how many times as fast this processor computes products in bfloat16 as in float32.

    They are timed, because its instruction set does not tell: of two processors with AVX512-BF16, one was twice as fast
    in bfloat16, the other a third slower.
    """
    products = [compiled_product(dtype) for dtype in ("float32", "bfloat16")]
    # The types take turns, because the load of the machine varies.
    seconds = [[measure_seconds(product) for product in products] for _ in range(REPEATS)]
    wide, narrow = np.min(seconds, axis=0)
    return float(wide / narrow)


def compiled_product(dtype: str) -> Callable[[], jax.Array]:
    def product(a):
        return jnp.matmul(a, a, preferred_element_type=jnp.float32)

    a = jax.device_put(np.ones((SIZE, SIZE), dtype), jax.local_devices(backend="cpu")[0])
    compiled = jax.jit(product).lower(a).compile()
    return lambda: jax.block_until_ready(compiled(a))


def measure_seconds(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun
