"""How long a step takes at least: what has to be computed, moved to and from memory, and sent between chips.

Three bounds. `serial` adds the three up, as if nothing ran beside anything else. `by_operation` goes through the
compiled schedule: within an operation memory and matrix units work at once, as a TPU's do, and operations follow one
another. `overlapped` is the longest of the three alone, which no program beats.
"""

from dataclasses import dataclass

from bert_jax.errors import BertJaxError
from bert_jax.pod.program import Collective, Program
from bert_jax.pod.topology import Slice

BOUNDS = {
    "serial": "one after the other",
    "by_operation": "operation by operation",
    "overlapped": "all at once",
}


@dataclass(frozen=True)
class Roofline:
    """Seconds of a step."""

    compute: float
    memory: float
    links: float
    by_operation: float

    @property
    def serial(self) -> float:
        return self.compute + self.memory + self.links

    @property
    def overlapped(self) -> float:
        return max(self.compute, self.memory, self.links)

    @property
    def binds(self) -> str:
        return max(("compute", "memory", "links"), key=lambda name: getattr(self, name))


def roofline(program: Program, flops: float, kernel_flops: dict[str, float], where: Slice) -> Roofline:
    """`flops` and, by kernel, `kernel_flops` are what a chip computes in a step."""
    chip, runs = where.chip, program.kernels
    if runs.keys() != kernel_flops.keys():
        raise BertJaxError(
            f"the traced step has the kernels {sorted(kernel_flops)} and the compiled one {sorted(runs)}: its "
            "time is unknown; --config.model.attention=xla uses no kernels"
        )
    links = sum(sending_seconds(collective, where) * collective.trips for collective in program.collectives)
    by_operation = links
    for operation in program.operations:
        # A kernel's products are not in the compiled text.
        kernel = operation.kernel
        flops_once = kernel_flops[kernel] / runs[kernel] if kernel else operation.flops
        seconds = max(flops_once / chip.flops, operation.traffic / chip.memory_speed)
        by_operation += seconds * operation.trips
    return Roofline(flops / chip.flops, program.traffic / chip.memory_speed, links, by_operation)


def sending_seconds(collective: Collective, where: Slice) -> float:
    """Seconds of a collective, by the shortest way round a ring: what a chip has to send, over its links."""
    n = collective.members or where.chips
    shares = {
        "all-reduce": 2 * (n - 1) / n,  # a reduce-scatter and an all-gather
        "reduce-scatter": (n - 1) / n,
        "all-gather": n - 1,  # of each chip's own part
        "all-to-all": (n - 1) / n,
        "collective-permute": 1.0,
    }
    # Fewer than all chips lie along one axis of the torus.
    speed = where.reduce_speed if n == where.chips else where.chip.link
    return shares[collective.kind] * collective.bytes / speed
