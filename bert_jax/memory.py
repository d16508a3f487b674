"""Memory: its pages, that of a GPU, and whether there is enough of it."""

import os
import platform
import sys
from pathlib import Path

from bert_jax.errors import BertJaxError

TUNABLES = "GLIBC_TUNABLES"
LARGE_PAGES = "glibc.malloc.hugetlb=1"
OLDEST_GLIBC = (2, 35)  # that knows it
SYSTEM = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MACHINE, CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
CHECK = "BERT_JAX_CHECK_MEMORY"  # 0: a run begins, however much memory it is estimated to need


def use_large_pages() -> None:
    """Start this program again with large pages, where it has to ask for them.

    A training step takes gigabytes of memory anew each time, and the system zeroes each page when it is first touched:
    a pass over new memory ran at 17 GB/s with large pages, at 8 GB/s with those of 4 KiB. glibc reads its settings
    only at the start.
    """
    if TUNABLES not in os.environ and can_ask():
        os.environ[TUNABLES] = LARGE_PAGES
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def share_gpu() -> None:
    """Take a GPU's memory as it is needed and not three quarters of it at once, so that another program has some."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def can_ask() -> bool:
    """Whether Linux gives large pages to programs that ask, and the C library can ask."""
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(map(int, version.split("."))) < OLDEST_GLIBC:
        return False
    return SYSTEM.exists() and "[madvise]" in SYSTEM.read_text()


def require(needed: float, what: str, remedy: str, device=None) -> None:
    """Refuse what takes more memory than is free, on a JAX device or else on this machine, before any is taken."""
    free = free_bytes(device)
    if free is not None and needed > free and not unchecked():
        where = "this machine" if device is None else device.device_kind
        raise BertJaxError(
            f"{what} takes {needed / 1e9:,.1f} GB of memory at least, and {where} has {free / 1e9:,.1f} GB free; "
            f"{remedy}"
        )


def unchecked() -> bool:
    """Whether the user asked to try whatever the estimate says."""
    return os.environ.get(CHECK) == "0"


def free_bytes(device=None) -> int | None:
    """None where it is not known."""
    if device is not None:
        stats = device.memory_stats() or {}
        return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None
    if not MACHINE.is_file():
        return None
    table = dict(line.split(":") for line in MACHINE.read_text().splitlines())
    free = sum(int(table[name].split()[0]) << 10 for name in ("MemAvailable", "SwapFree") if name in table)
    for group in own_groups():
        limit, used = group / "memory.max", group / "memory.current"
        if limit.is_file() and used.is_file() and (most := limit.read_text().strip()) != "max":
            # What was read from files counts as used, and goes when memory is asked for.
            kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            free = min(free, int(most) - int(used.read_text()) + int(kept["inactive_file"]))
    return free


def own_groups() -> list[Path]:
    """The control group of this process and those around it, each of which may have a limit (version 2)."""
    lines = OWN_GROUP.read_text().splitlines() if OWN_GROUP.is_file() else []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    path = CONTAINER / own
    return [group for group in (path, *path.parents) if group == CONTAINER or CONTAINER in group.parents]
