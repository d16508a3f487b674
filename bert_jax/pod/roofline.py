"""Bounds of the time of a step, from its parts: computing, memory traffic, and sending between chips.

There are three bounds. `serial` is the sum of the parts, as if nothing overlapped. `scheduled` goes through the
compiled schedule: within an operation, memory and matrix units work at the same time, as on a TPU, and operations run
one after another. `least` is the longest part; no program is faster.
"""

from dataclasses import dataclass

from bert_jax.core.errors import BertJaxError
from bert_jax.pod.hlo import Collective, HloProgram
from bert_jax.pod.topology import Slice

BOUNDS = ("serial", "scheduled", "least")


@dataclass(frozen=True)
class Roofline:
    """The seconds of the parts of a step, and the bound from the schedule."""

    compute: float
    memory: float
    links: float
    scheduled: float

    @property
    def serial(self) -> float:
        return self.compute + self.memory + self.links

    @property
    def least(self) -> float:
        return max(self.compute, self.memory, self.links)

    @property
    def bottleneck(self) -> str:
        return max(("compute", "memory", "links"), key=lambda name: getattr(self, name))


def make_roofline(
    program: HloProgram, flops: float, kernel_flops: dict[str, float], where: Slice
) -> Roofline:
    """Bound the seconds of a step. A device computes `flops` in it, and `kernel_flops` in each kernel."""
    chip, runs = where.chip, program.kernels
    if runs.keys() != kernel_flops.keys():
        raise BertJaxError(
            f"the traced step has the kernels {sorted(kernel_flops)} and the compiled one {sorted(runs)}: its "
            "time is unknown; set --config.model.attention=xla, which uses no kernels"
        )
    links = sum(sending_seconds(collective, where) * collective.trips for collective in program.collectives)
    scheduled = links
    for operation in program.operations:
        # A kernel's products are not in the compiled text.
        kernel = operation.kernel
        flops_once = kernel_flops[kernel] / runs[kernel] if kernel else operation.flops
        seconds = max(flops_once / chip.flops, operation.traffic / chip.memory_speed)
        scheduled += seconds * operation.trips
    return Roofline(flops / chip.flops, program.traffic / chip.memory_speed, links, scheduled)


def sending_seconds(collective: Collective, where: Slice) -> float:
    """Return the seconds of a collective on a ring, the shortest way: what a device sends / the speed of its links."""
    n = collective.members or where.device_count
    shares = {
        "all-reduce": 2 * (n - 1) / n,  # a reduce-scatter and an all-gather
        "reduce-scatter": (n - 1) / n,
        "all-gather": n - 1,  # of each device's own part
        "all-to-all": (n - 1) / n,
        "collective-permute": 1.0,
    }
    # A group of fewer than all devices lies along one axis of the torus.
    speed = where.all_reduce_bandwidth if n == where.device_count else where.chip.link
    if collective.opcode == "collective-permute":
        speed = 2 * where.chip.link  # a ring sends to both neighbours at once (models/data_sharded.py)
    return shares[collective.opcode] * collective.bytes / speed
