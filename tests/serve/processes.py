"""Servers in processes of their own."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import process_environment

STARTING = 900.0  # seconds, most of which are compilation where the cache is empty and the cores are busy


class RunningServer:
    """A server that has announced its address."""

    sockets_without_clients = 0  # a test may count them

    def __init__(self, arguments: list[str], **environment: str):
        command = [sys.executable, "-m", "bert_jax", "serve", "--port", "0", *arguments]
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - unlike a pipe, it is never full
        self.process = subprocess.Popen(
            command, env=process_environment() | environment, stdout=self.output, stderr=subprocess.STDOUT
        )
        self.url = self.wait_for(r" at (http://[^\s,]+)[^\n]*\n")
        self.host, self.port = "127.0.0.1", int(self.url.rsplit(":", 1)[1])

    @property
    def printed(self) -> str:
        return os.pread(self.output.fileno(), 1 << 30, 0).decode()

    def wait_for(self, pattern: str, seconds: float = STARTING) -> str:
        """Return the first group of a pattern, as soon as the server has printed it."""
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.printed)):
            code = self.process.poll()
            if code is not None or time.monotonic() > until:
                self.process.kill()
                raise AssertionError(
                    f"{pattern!r} was not printed, exit code {code}:\n{self.printed[-3000:]}"
                )
            time.sleep(0.02)
        return found[1]

    @property
    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return 1024 * int(found[1])

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> tuple[int, str]:
        """Return the exit code, and all that the server printed."""
        try:
            code = self.process.wait(seconds)
        finally:
            self.process.kill()
        return code, self.printed

    def stop(self) -> tuple[int, str]:
        """Stop it, if it still runs."""
        if self.process.poll() is None:
            self.signal()
        return self.wait()


def start_server(arguments: list[str], **environment: str) -> RunningServer:
    return RunningServer(arguments, **environment)


@contextmanager
def serving(directories: Mapping[str, Path], *options: str, **environment: str) -> Iterator[str]:
    """Serve models by their names, and give the address of the server; at the end, it is told to stop."""
    server = start_server(
        [*(f"{name}={path}" for name, path in directories.items()), *options], **environment
    )
    try:
        yield server.url
    finally:
        code, printed = server.stop()
    assert code == 0 and "are answered" in printed, printed[-3000:]
