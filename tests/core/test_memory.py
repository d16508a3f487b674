"""A command that trains begins again with large pages, once."""

import os
import platform
import subprocess
import sys

import pytest

from bert_jax.core.memory import LARGE_PAGES, SYSTEM, TUNABLES

COMMAND = """
import os, resource, sys
print(os.getpid(), sys.argv[1:])
from bert_jax.core.memory import use_large_pages
use_large_pages()
import numpy as np
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(2**24)
print(os.getpid(), sys.argv[1:], resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(**environment) -> list[str]:
    """Lines that the command prints."""
    command = [sys.executable, "-u", "-c", COMMAND, "train", "two words"]
    known = {name: value for name, value in os.environ.items() if name != TUNABLES}
    done = subprocess.run(command, env=known | environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def glibc_is_recent() -> bool:
    name, version = platform.libc_ver()
    return name == "glibc" and [int(part) for part in version.split(".")] >= [2, 35]


@pytest.mark.skipif(
    not SYSTEM.exists() or "[madvise]" not in SYSTEM.read_text() or not glibc_is_recent(),
    reason="this system gives large pages to all programs or to none",
)
def test_large_pages_are_asked_for_once():
    first, again, last = run()
    assert again == first  # the same process, the same arguments
    assert last.startswith(first) and int(last.split()[-1]) < 2000  # 128 MiB are 32,768 pages of 4 KiB


def test_what_is_set_already_stays():
    for chosen in ("", LARGE_PAGES):
        first, last = run(**{TUNABLES: chosen})
        assert last.startswith(first)
