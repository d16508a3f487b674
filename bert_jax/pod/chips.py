"""What the chips can do: dense bfloat16 peaks as their makers publish them, in FLOP/s.

TPUs: the "System architecture" pages of the Cloud TPU documentation, per chip. NVIDIA: the data sheets' dense figures
of the SXM boards (they print twice as much, for sparse matrices).
"""

# The kind that JAX reports for a device -> peak.
PEAKS = {
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}


def peak_of(device_kind: str) -> float | None:
    """A device's peak in bfloat16; None for what is not in the table, a CPU among others."""
    return PEAKS.get(device_kind)
