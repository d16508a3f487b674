"""Memory: large pages, what is freed, and checks that enough is free."""

import ctypes
import os
import platform
import resource
import sys
from pathlib import Path

from bert_jax.core.errors import BertJaxError

TUNABLES = "GLIBC_TUNABLES"
LARGE_PAGES = "glibc.malloc.hugetlb=1"
OLDEST_GLIBC = (2, 35)  # the first version with that setting
SYSTEM = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MACHINE, CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
OWN_GROUP, OWN_STATUS = Path("/proc/self/cgroup"), Path("/proc/self/status")
CHECK = "BERT_JAX_CHECK_MEMORY"  # 0: start a run however much memory it is estimated to need
ADDRESS_SPACE = 1.5e9  # bytes without which JAX cannot start its threads and compile, on two cores


def use_large_pages() -> None:
    """Restart this program with large pages if the system gives them only on request.

    Each training step allocates gigabytes anew, and the system zeroes each page when it is first touched: a pass over
    new memory ran at 17 GB/s with large pages, and at 8 GB/s with pages of 4 KiB. The restart is needed because glibc
    reads its settings only at program start.
    """
    if TUNABLES not in os.environ and can_request_large_pages():
        os.environ[TUNABLES] = LARGE_PAGES
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def can_request_large_pages() -> bool:
    """Whether Linux gives large pages to programs that ask for them, and the C library is able to ask."""
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(map(int, version.split("."))) < OLDEST_GLIBC:
        return False
    return SYSTEM.exists() and "[madvise]" in SYSTEM.read_text()


def return_freed_memory() -> None:
    """Return to the system what this process has freed and the C library keeps: much, after many compilations."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def require_free_memory(needed: float, what: str, remedy: str) -> None:
    """Raise if more memory is `needed` than this machine has free. Nothing is allocated."""
    free = free_bytes()
    if free is not None and needed > free and not is_check_disabled():
        raise BertJaxError(
            f"{what} needs at least {needed / 1e9:,.1f} GB of memory, but this machine has {free / 1e9:,.1f} GB free; "
            f"{remedy}"
        )


def require_address_space() -> None:
    """Raise if the process may use too few addresses for JAX, which would abort it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < ADDRESS_SPACE and not is_check_disabled():
        raise BertJaxError(
            f"JAX needs {ADDRESS_SPACE / 1e9:.1f} GB of address space, and the limit of this process is "
            f"{limit / 1e9:.1f} GB; raise it with `ulimit -v unlimited`"
        )


def is_check_disabled() -> bool:
    return os.environ.get(CHECK) == "0"


def free_bytes(device=None) -> int | None:
    """Return the free memory of the device, or else of this machine; None if it is not known."""
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
            # Cached file contents count as used, but are dropped when memory is requested.
            kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            free = min(free, int(most) - int(used.read_text()) + int(kept["inactive_file"]))
    return free


def peak_bytes(device) -> int | None:
    """Return the most memory of the device that was in use at a time; None if it is not known, as on CPUs."""
    return (device.memory_stats() or {}).get("peak_bytes_in_use")


def peak_process_bytes() -> int:
    """Return the most memory that this program has used. A process begins with the peak of its parent in `getrusage`,
    but not in the file of Linux."""
    if OWN_STATUS.is_file():
        for line in OWN_STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def own_groups() -> list[Path]:
    """Return the control groups (version 2) that contain this process, innermost first; each may have a limit."""
    lines = OWN_GROUP.read_text().splitlines() if OWN_GROUP.is_file() else []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    path = CONTAINER / own
    return [group for group in (path, *path.parents) if group == CONTAINER or CONTAINER in group.parents]
