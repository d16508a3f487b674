"""Commands and scripts in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.project import ROOT


def process_environment() -> dict:
    """As in the tests' own process, programs are quick to compile; what one has compiled serves the other."""
    return os.environ | {
        "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }  # fmt: skip


def start_process(arguments: list[str], **changes) -> subprocess.Popen:
    return subprocess.Popen(
        arguments,
        env=process_environment() | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_process(arguments: list[str], code: int = 0, **changes) -> str:
    process = start_process(arguments, **changes)
    output = process.communicate(timeout=300)[0]
    assert process.returncode == code, output[-3000:]
    return output


def run_on_eight_devices(module: str, *arguments: str) -> dict:
    """What a module of the tests prints as JSON in a process with eight CPU devices."""
    flags = "--xla_force_host_platform_device_count=8"
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=process_environment() | {"XLA_FLAGS": flags}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


def kill_pod(pod: subprocess.Popen, folder: Path) -> None:
    """Nothing of launch/local_pod.sh goes on, also when its test has failed."""
    pod.kill()
    for process in folder.glob("*/pid"):
        if not process.with_name("exit").exists():
            with suppress(ProcessLookupError):
                os.kill(int(process.read_text()), signal.SIGKILL)
