"""Which type a device computes fastest in."""

from functools import cache
from pathlib import Path

import jax

CPU_FACTS = Path("/proc/cpuinfo")  # where Linux tells a processor's instructions
INSTRUCTIONS = {"avx512_bf16", "amx_bf16"}
AMPERE = 8.0  # the first NVIDIA generation with products in bfloat16


@cache
def fast_dtype(platform: str) -> str:
    """ "bfloat16" where the device multiplies it faster than float32, "float32" elsewhere."""
    if platform == "cpu":
        fast = CPU_FACTS.exists() and bool(INSTRUCTIONS & set(CPU_FACTS.read_text().split()))
    elif platform == "tpu":
        fast = True
    else:
        fast = float(getattr(jax.devices()[0], "compute_capability", 0)) >= AMPERE
    return "bfloat16" if fast else "float32"
