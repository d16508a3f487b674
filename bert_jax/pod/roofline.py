"""How long a step takes at least: what has to be computed, moved to and from memory, and sent between chips.

Three bounds. `serial` adds the three up, as if nothing ran beside anything else. `by_operation` goes through the
compiled schedule: within an operation memory and matrix units work at once, as a TPU's do, and operations follow one
another. `overlapped` is the longest of the three alone, which no program beats.
"""

from dataclasses import dataclass

from bert_jax.pod.program import Collective, Program
from bert_jax.pod.topology import Slice


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
    """`flops` and, of each kernel, `kernel_flops` are a chip's in a step."""
    chip = where.chip
    links = sum(sending(each, where) * each.trips for each in program.collectives)
    own = dict.fromkeys(kernel_flops, 0.0)  # executions of each kernel in a step
    kernel_of = {}
    for each in program.operations:
        for name in own:
            if each.kernel and each.name.startswith(name):
                own[name] += each.trips
                kernel_of[each.name] = name
    by_operation = links
    for each in program.operations:
        kernel = kernel_of.get(each.name)
        own_flops = kernel_flops[kernel] / own[kernel] if kernel else each.flops
        by_operation += max(own_flops / chip.flops, each.traffic / chip.memory_speed) * each.trips
    return Roofline(flops / chip.flops, program.traffic / chip.memory_speed, links, by_operation)


def sending(each: Collective, where: Slice) -> float:
    """Seconds of a collective, by the shortest way round a ring: what a chip has to send, over its links."""
    n = each.members or where.chips
    shares = {
        "all-reduce": 2 * (n - 1) / n,  # a reduce-scatter and an all-gather
        "reduce-scatter": (n - 1) / n,
        "all-gather": n - 1,  # of each chip's own part
        "all-to-all": (n - 1) / n,
        "collective-permute": 1.0,
    }
    # Some of the chips stand along one axis of the torus.
    speed = where.reduce_speed if n == where.chips else where.chip.link
    return shares[each.kind] * each.bytes / speed
