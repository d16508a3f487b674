"""Count the floating-point operations of a traced program: its matrix products, with a scan's body times its length.

The TPU compiler's own count leaves out these factors, and Pallas kernels altogether.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field

from jax.extend.core import jaxprs_in_params

# Primitives whose outputs are those of the program inside them.
CALLS = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "custom_jvp_call"}


def count_flops(jaxpr, global_share: float | None = None) -> tuple[float, dict[str, float]]:
    """Return (all FLOPs, FLOPs by Pallas kernel) of all devices together, two operations per multiply-add.

    `global_share` is that of the layers with global attention, if one loop runs these and those with local attention.
    """
    counter = FlopCounter(global_share)
    return counter.count_program(jaxpr, 1), dict(counter.kernels)


@dataclass(frozen=True)
class FlopCounter:
    global_share: float | None
    kernels: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def count_program(self, jaxpr, times: int, wanted: list[bool] | None = None) -> float:
        """Count the FLOPs of `times` runs for the wanted outputs, by default all; the compiler drops the rest, too."""
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        needed = {
            id(v)
            for v, want in zip(jaxpr.outvars, wanted or [True] * len(jaxpr.outvars), strict=True)
            if want
        }
        total = 0.0
        for equation in reversed(jaxpr.eqns):
            used = [id(v) in needed for v in equation.outvars]
            if any(used) or equation.effects:
                total += self.count_equation(equation, times, used)
                needed |= {id(v) for v in equation.invars}
        return total

    def count_equation(self, equation, times: int, used: list[bool]) -> float:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            left, out = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
            return 2.0 * times * math.prod(out) * math.prod(left[axis] for axis in contracted)
        if name == "scan":
            return self.count_program(params["jaxpr"], times * params["length"])
        if name == "cond":
            return self.count_branches(params["branches"], times)
        if name == "shard_map":
            # The shapes inside are those of one device.
            devices = math.prod(params["mesh"].shape[axis] for axis in params["newly_manual_axes"])
            return self.count_program(params["jaxpr"], times * devices, used)
        if name == "pallas_call":
            estimate, runs = params["cost_estimate"], times * math.prod(params["grid_mapping"].grid)
            flops = times * estimate.flops if estimate else self.count_program(params["jaxpr"], runs)
            self.kernels[params["name"]] += flops
            return flops
        if name in CALLS:
            return sum(self.count_program(inner, times, used) for inner in jaxprs_in_params(params))
        return sum(self.count_program(inner, times) for inner in jaxprs_in_params(params))

    def count_branches(self, branches, times: int) -> float:
        """Count the most, or the mean where both branches have kernels: those are global attention, then local."""
        counters = [FlopCounter(self.global_share) for _ in branches]
        totals = [
            counter.count_program(branch, times) for counter, branch in zip(counters, branches, strict=True)
        ]
        total, share = max(totals), 1.0
        if (
            self.global_share is not None
            and len(totals) == 2
            and all(counter.kernels for counter in counters)
        ):
            total = self.global_share * totals[0] + (1 - self.global_share) * totals[1]
            share = total / totals[0]
        # Only the kernels of the first branch count: hlo.py reads no others of the compiled program.
        for name, flops in counters[0].kernels.items():
            self.kernels[name] += share * flops
        return total
