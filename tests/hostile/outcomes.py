"""What came of a command: right, one clear line, or a failure of the test; in processes of their own, and counted."""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.support.processes import process_environment

LONGEST = 400  # characters of a message
SECONDS = 20  # that a command on small material may take, whatever it is given
RIGHT, LINE, WRONG = "right", "one clear line", "wrong accepted"
COMPLAINT = re.compile(r"bert-jax[ :]")  # other lines of standard error are the log of a run


@dataclass(frozen=True)
class Outcome:
    code: int | None  # None: it was still running after SECONDS
    stdout: str
    stderr: str
    seconds: float

    @property
    def kind(self) -> str:
        """RIGHT, LINE, or what is wrong with it."""
        if self.code is None:
            return "hang"
        if "Traceback (most recent call last)" in self.stdout + self.stderr:
            return "traceback"
        if self.code == 0:
            return RIGHT
        if self.code < 0:
            return "crash"
        lines = [line for line in self.stderr.splitlines() if COMPLAINT.match(line)]
        if len(lines) != 1:
            return "no line" if not lines else "many lines"
        return LINE if len(lines[0]) < LONGEST else "long line"

    @property
    def sound(self) -> bool:
        return self.kind in (RIGHT, LINE)


def started(arguments: Iterable, **options) -> subprocess.Popen:
    """`bert-jax ARGUMENTS` in a process of its own."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    options["env"] = process_environment() | options.get("env", {})
    command = [sys.executable, "-m", "bert_jax", *map(str, arguments)]
    return subprocess.Popen(command, text=True, errors="replace", **options)


def outcome_of(process: subprocess.Popen, seconds: float = SECONDS) -> Outcome:
    begun = time.monotonic()
    try:
        stdout, stderr = process.communicate(timeout=seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        code = None
    return Outcome(code, stdout or "", stderr or "", time.monotonic() - begun)


def outcome(arguments: Iterable, seconds: float = SECONDS, **options) -> Outcome:
    return outcome_of(started(arguments, **options), seconds)


def table(kinds: Iterable[str]) -> str:
    """The counts by kind, those of failures last."""
    counts = Counter(kinds)
    order = sorted(counts, key=lambda kind: (kind not in (RIGHT, LINE), -counts[kind]))
    return "\n".join(f"{counts[kind]:>8,}  {kind}" for kind in [*order])
