"""Commands in processes that are forked from one that has imported everything, for the sake of the seconds."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.support.processes import process_environment


class Forks:
    """The process to fork from. Use as a context manager."""

    def __enter__(self):
        environment = process_environment()
        environment["GLIBC_TUNABLES"] = ""  # `train` starts itself again where this is not set
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("fork_server.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def start(self, arguments: Iterable, output: Path) -> int:
        """Start `bert-jax ARGUMENTS` in a session of its own; what it prints goes to the file."""
        number = self._ask({"run": [*map(str, arguments)], "output": str(output)})
        while os.getpgid(number) != number:  # until then a signal to its session finds none
            time.sleep(0.0005)
        return number

    def wait(self, number: int, seconds: float = 120) -> int | None:
        """The exit code; None if it had to be killed because it was still running."""
        deadline = time.monotonic() + seconds
        self._send({"wait": number})
        while not select.select([self.process.stdout], [], [], 0.5)[0]:
            if time.monotonic() > deadline:
                os.killpg(number, signal.SIGKILL)
                json.loads(self.process.stdout.readline())
                return None
        return os.waitstatus_to_exitcode(json.loads(self.process.stdout.readline()))

    def _ask(self, request: dict) -> int:
        self._send(request)
        return json.loads(self.process.stdout.readline())

    def _send(self, request: dict) -> None:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
