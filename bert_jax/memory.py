"""Pages of memory."""

import os
import sys
from pathlib import Path

TUNABLES = "GLIBC_TUNABLES"
LARGE_PAGES = "glibc.malloc.hugetlb=1"  # from glibc 2.35 on
SYSTEM = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def use_large_pages() -> None:
    """Start this program again with large pages, where Linux gives them only to programs that ask.

    A training step takes some gigabytes of memory anew each time. In pages of 4 KiB, each of which the system zeroes
    when it is first touched, that takes longer than all the step's sums. glibc reads its settings only at the start;
    the environment variable, once set, keeps its value.
    """
    if sys.platform == "linux" and TUNABLES not in os.environ and SYSTEM.exists():
        if "[madvise]" in SYSTEM.read_text():
            os.environ[TUNABLES] = LARGE_PAGES
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
