"""Count the floating-point operations of a traced program: its matrix products, with a scan's body times its length.

The TPU compiler's own count leaves out these factors, and Pallas kernels altogether.
"""

import math
from collections import defaultdict

from jax.extend.core import jaxprs_in_params

# Primitives whose outputs are those of the program inside them.
CALLS = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "custom_jvp_call"}


def count_flops(jaxpr) -> tuple[float, dict[str, float]]:
    """Return (all FLOPs, FLOPs by Pallas kernel) of all devices together, two operations per multiply-add."""
    kernels: defaultdict[str, float] = defaultdict(float)
    return count_program(jaxpr, 1, kernels), dict(kernels)


def count_program(jaxpr, times: int, kernels: dict[str, float], wanted: list[bool] | None = None) -> float:
    """Count the FLOPs of `times` runs for the wanted outputs, by default all; the compiler drops the rest, too."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    needed = {
        id(v) for v, want in zip(jaxpr.outvars, wanted or [True] * len(jaxpr.outvars), strict=True) if want
    }
    total = 0.0
    for equation in reversed(jaxpr.eqns):
        used = [id(v) in needed for v in equation.outvars]
        if any(used) or equation.effects:
            total += count_equation(equation, times, kernels, used)
            needed |= {id(v) for v in equation.invars}
    return total


def count_equation(equation, times: int, kernels: dict[str, float], used: list[bool]) -> float:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left, out = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
        return 2.0 * times * math.prod(out) * math.prod(left[axis] for axis in contracted)
    if name == "scan":
        return count_program(params["jaxpr"], times * params["length"], kernels)
    if name == "cond":
        first, *others = params["branches"]
        # Only the kernels of the first branch count: hlo.py reads no others of the compiled program.
        return max(
            [
                count_program(first, times, kernels),
                *(count_program(other, times, defaultdict(float)) for other in others),
            ]
        )
    if name == "shard_map":
        # The shapes inside are those of one device.
        devices = math.prod(params["mesh"].shape[axis] for axis in params["newly_manual_axes"])
        return count_program(params["jaxpr"], times * devices, kernels, used)
    if name == "pallas_call":
        estimate, runs = params["cost_estimate"], times * math.prod(params["grid_mapping"].grid)
        flops = times * estimate.flops if estimate else count_program(params["jaxpr"], runs, kernels)
        kernels[params["name"]] += flops
        return flops
    if name in CALLS:
        return sum(count_program(inner, times, kernels, used) for inner in jaxprs_in_params(params))
    return sum(count_program(inner, times, kernels) for inner in jaxprs_in_params(params))
