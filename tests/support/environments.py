"""Environments of other packages, each with a Python of its own."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.project import LAUNCH, ROOT

PYTHONS = re.search(r"^tried=\((.*)\)$", (LAUNCH / "python.sh").read_text(), re.M)[1].split()


def find_python(version: str) -> str | None:
    """The path of a Python of this version, if this machine has one."""
    script = f'source "{LAUNCH}/python.sh" && find_python {version}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout.strip() or None


def run_command(*command, **variables: str) -> str:
    """Run a command, which must succeed, without the Hub; return what it wrote to standard output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1"} | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def new_environment() -> Iterator[Path]:
    """Make an environment, and give the folder of its programs.

    It holds gigabytes, which pytest would keep in its own temporary folders.
    """
    with tempfile.TemporaryDirectory() as folder:
        run_command(sys.executable, "-m", "venv", folder)
        yield Path(folder) / "bin"
