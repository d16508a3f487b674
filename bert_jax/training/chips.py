"""Speed and memory of chips, as their makers publish them.

TPUs: from the "System architecture" tables of the Cloud TPU documentation (docs.cloud.google.com/tpu/docs/v4, v5e, v5p,
v6e and tpu7x); where a chip is two devices of JAX, each has half. The speed of a link is that of one direction: the
published all-reduce bandwidth of a pod (v4, v5e, v6e) or interconnect bandwidth of a chip (v5p, tpu7x), divided by the
number of chips and of ports per chip. Usable memory is what the TPU compiler leaves to a program. NVIDIA: the figures
for dense matrices; most data sheets print twice as much, for sparse ones.
"""

from dataclasses import dataclass

from bert_jax.core.errors import BertJaxError, suggest_name


@dataclass(frozen=True)
class Chip:
    name: str
    device_kind: str  # what JAX calls the device
    flops: float  # per second, for dense bfloat16
    memory: float  # bytes that a program may use
    memory_speed: float  # bytes per second
    link: float  # bytes per second, one way, which the devices of a chip share
    axes: int  # of the torus of chips; a chip has two ports on each
    wraps_at: int  # the ends of an axis are joined if its number of chips is a multiple of this
    devices: int = 1  # that JAX sees in a chip

    @property
    def unit(self) -> str:
        """The word for what JAX calls a device."""
        return "chip" if self.devices == 1 else "device"


GiB = 2**30
TPUS = {
    chip.name: chip
    for chip in (
        Chip("v4", "TPU v4", 275e12, 30.75 * GiB, 1200e9, 45e9, 3, 4),
        Chip("v5e", "TPU v5 lite", 197e12, 15.75 * GiB, 819e9, 50e9, 2, 16),
        Chip("v5p", "TPU v5", 459e12, 95.74 * GiB, 2765e9, 100e9, 3, 4),
        Chip("v6e", "TPU v6 lite", 918e12, 31.25 * GiB, 1638e9, 100e9, 2, 16),
        Chip("tpu7x", "TPU7x", 1153.5e12, 94.74 * GiB, 3690e9, 100e9, 3, 4, devices=2),
    )
}

# The kind that JAX reports for a device -> peak FLOP/s in bfloat16; others, such as CPUs, are not in the table.
PEAKS = {chip.device_kind: chip.flops for chip in TPUS.values()} | {
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
    "NVIDIA L4": 121e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA B200": 2250e12,
}


def find_tpu(name: str) -> Chip:
    if name not in TPUS:
        raise BertJaxError(f'--topology: unknown chip "{name}"; {suggest_name(name, TPUS)}')
    return TPUS[name]
