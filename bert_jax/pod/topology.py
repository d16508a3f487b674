"""A slice of TPU chips, described by a name such as v5e:4x4; no chip is needed."""

import math
import re
from dataclasses import dataclass

from bert_jax.core.errors import BertJaxError
from bert_jax.training.chips import Chip, find_tpu

CHIPS_ON_A_HOST = 4  # in slices of several hosts


@dataclass(frozen=True)
class Slice:
    chip: Chip
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def device_count(self) -> int:
        return self.chips * self.chip.devices

    @property
    def hosts(self) -> int:
        return -(-self.chips // CHIPS_ON_A_HOST)

    @property
    def all_reduce_bandwidth(self) -> float:
        """Bytes per second that the chip with the fewest links can send, over all of its links together.

        The ends of an axis are joined only in whole cubes or rows of a pod; otherwise a corner has one port per axis.
        """
        joined = [size % self.chip.wraps_at == 0 for size in self.shape]
        if self.chip.axes == 3:
            joined = [all(joined)] * 3  # cubes of 4 x 4 x 4 are joined as a whole, or not at all
        ports = sum((size > 1) * (1 + wraps) for size, wraps in zip(self.shape, joined, strict=True))
        return max(ports, 1) * self.chip.link

    def devices(self) -> list:
        """Return the devices to compile for. This needs libtpu."""
        from jax.experimental import topologies

        # A v4 chip has two cores, which programs see as one.
        more = {"chip_config_name": "megacore"} if self.chip.name == "v4" else {}
        return list(topologies.get_topology_desc(platform="tpu", topology_name=str(self), **more).devices)


# The types of slices in launch/settings.sh -> the name of the chip, and its cores, by which the type counts.
TYPES = {"v4": ("v4", 2), "v5litepod": ("v5e", 1), "v5p": ("v5p", 2), "v6e": ("v6e", 1)}


def slice_of_type(slice_type: str) -> Slice:
    """Return the slice of an accelerator type, in the shape that it has by default.

    >>> str(slice_of_type("v5litepod-16")), str(slice_of_type("v4-32")), str(slice_of_type("v5litepod-32"))
    ('v5e:4x4', 'v4:2x2x4', 'v5e:4x8')
    >>> str(slice_of_type("v4-8"))
    'v4:2x2x1'
    """
    name, _, count = slice_type.partition("-")
    if name not in TYPES or not count.isdecimal():
        raise BertJaxError(
            f'no slice "{slice_type}"; types are named like {", ".join(f"{known}-16" for known in TYPES)}'
        )
    chip, cores = find_tpu(TYPES[name][0]), TYPES[name][1]
    chips, sides = int(count) // cores, [1] * find_tpu(TYPES[name][0]).axes
    while math.prod(sides) < chips:  # double the last of the shortest sides
        shortest = min(sides)
        sides[len(sides) - 1 - sides[::-1].index(shortest)] *= 2
    if math.prod(sides) != chips:
        raise BertJaxError(f"{slice_type}: the number of chips of a slice is a power of two, not {chips}")
    return Slice(chip, tuple(sorted(sides, reverse=1 in sides)))  # 2x2x1, but 2x2x4


def parse_slice(name: str) -> Slice:
    """Return the slice that has this name.

    >>> parse_slice("v5e:4x4").hosts
    4
    >>> parse_slice("v5p:64")
    Traceback (most recent call last):
    bert_jax.core.errors.BertJaxError: --topology v5p:64: a v5p slice is named by its 3 sides in chips, as in v5p:2x2x4
    """
    slice_type, _, sides = name.partition(":")
    chip = find_tpu(slice_type.partition("-")[0])
    example = f"{chip.name}:{'4x4' if chip.axes == 2 else '2x2x4'}"
    shape = tuple(int(side) for side in sides.split("x")) if re.fullmatch(r"\d+(x\d+)+", sides) else ()
    if "-" in slice_type or len(shape) != chip.axes or 0 in shape:
        raise BertJaxError(
            f"--topology {name}: a {chip.name} slice is named by its {chip.axes} sides in chips, as in {example}"
        )
    whole = all(side % 2 == 0 for side in shape[:2]) or math.prod(shape) == 1
    if not whole:
        raise BertJaxError(
            f"--topology {name}: hosts hold 2x2 chips, so the first two sides must be even, as in {example}"
        )
    return Slice(chip, shape)
