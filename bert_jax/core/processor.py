"""What this process has of the machine's processor."""

import os
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_flags() -> set[str]:
    """Return the instruction sets of this processor; empty if the system does not list them."""
    if not CPU_INFO.is_file():
        return set()
    lines = CPU_INFO.read_text().splitlines()
    return {flag for line in lines if line.startswith("flags") for flag in line.split(":")[1].split()}
