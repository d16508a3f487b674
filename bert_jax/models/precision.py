"""Which type a device computes fastest in."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

AMPERE = 8.0  # the first NVIDIA generation with products in bfloat16
SIZE = 768  # of the product that is timed: some milliseconds
REPEATS = 7
MARGIN = 1.2  # a smaller gain is not worth the rounding


@cache
def fast_dtype(platform: str) -> str:
    """ "bfloat16" where the device multiplies it faster than float32, "float32" elsewhere.

    Each of several processes on CPUs would time its own, and all must run the same program: theirs is "float32".
    """
    if platform == "cpu" and jax.process_count() > 1:
        fast = False
    elif platform == "cpu":
        # In a thread of its own: whoever asks may be tracing a program, for devices of its own.
        with ThreadPoolExecutor(1) as thread:
            fast = thread.submit(cpu_gain).result() > MARGIN
    elif platform == "tpu":
        fast = True
    else:
        fast = float(getattr(jax.devices()[0], "compute_capability", 0)) >= AMPERE
    return "bfloat16" if fast else "float32"


def cpu_gain() -> float:
    """How many times as fast this processor's products are in bfloat16.

    They are timed, because its instructions do not tell: of two processors with AVX512-BF16 one was twice as fast in
    bfloat16, the other a third slower.
    """
    products = [compiled_product(dtype) for dtype in ("float32", "bfloat16")]
    seconds = [
        [timed(product) for product in products] for _ in range(REPEATS)
    ]  # in turn: load comes and goes
    wide, narrow = np.min(seconds, axis=0)
    return float(wide / narrow)


def compiled_product(dtype: str) -> Callable[[], jax.Array]:
    def product(a):
        return jnp.matmul(a, a, preferred_element_type=jnp.float32)

    a = jax.device_put(np.ones((SIZE, SIZE), dtype), jax.local_devices(backend="cpu")[0])
    compiled = jax.jit(product).lower(a).compile()
    return lambda: jax.block_until_ready(compiled(a))


def timed(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun
