"""Commands run one after the other in one process, for starting JAX takes seconds; a hang or a crash costs it.

python -m tests.hostile.worker        reads a command a line, as JSON, and answers each with its exit code
"""

import io
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.hostile.outcomes import SECONDS, Outcome
from tests.support.processes import process_environment

MEMORY = 8 << 30  # bytes of the process; a command on small material needs far less
TICK = 0.1
PATIENCE = 3  # times SECONDS of our own clock, for a process that waits while others compute


class Worker:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="hostile-"))
        self.process: subprocess.Popen | None = None
        self.count = 0

    def outcome(self, arguments, stdin: Path | str = os.devnull, cwd: Path | None = None) -> Outcome:
        process = self.started()
        # Not those of the command before, into which a process of its own may still write.
        self.count += 1
        out, err = self.folder / f"out{self.count}", self.folder / f"err{self.count}"
        asked = {"arguments": list(map(str, arguments)), "stdin": str(stdin), "cwd": str(cwd or self.folder)}
        begun, busy = time.monotonic(), cpu_seconds(process.pid)
        process.stdin.write(json.dumps(asked | {"out": str(out), "err": str(err)}).encode() + b"\n")
        process.stdin.flush()
        for _ in range(int(PATIENCE * SECONDS / TICK)):
            if select.select([process.stdout], [], [], TICK)[0] or cpu_seconds(process.pid) - busy > SECONDS:
                break
        answered = select.select([process.stdout], [], [], 0)[0]
        line = process.stdout.readline() if answered else b""
        code = json.loads(line) if line else self.final_params(process, hangs=not answered)
        texts = [path.read_text("utf-8", "replace") if path.exists() else "" for path in (out, err)]
        for path in (out, err):
            path.unlink(missing_ok=True)
        return Outcome(code, *texts, time.monotonic() - begun)

    def started(self) -> subprocess.Popen:
        if self.process is None:
            environment = process_environment() | {"PYTHONUNBUFFERED": ""}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.worker"], env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, cwd=self.folder,
            )  # fmt: skip
            self.process.stdout.readline()  # it is ready
        return self.process

    def final_params(self, process: subprocess.Popen, hangs: bool) -> int | None:
        process.kill() if hangs else None
        code = process.wait()
        self.process = None
        # What ends the process in which others would have run on is a crash, whatever its code.
        return None if hangs else min(code, -1)

    def close(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    import jax  # before the clock runs

    # What takes the time of a training this small is compiling it.
    jax.config.update("jax_disable_most_optimizations", True)

    from bert_jax.command.main import main
    from bert_jax.text.host_tensorflow import tf  # noqa: F401

    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        code = answer(main, json.loads(line))
        answers.write(json.dumps(code).encode() + b"\n")
        answers.flush()


def answer(main, asked: dict) -> int:
    """The exit code of a command whose standard streams are files."""
    os.chdir(asked["cwd"])
    modes = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for fd, (name, mode) in enumerate(zip(("stdin", "out", "err"), modes, strict=True)):
        opened = os.open(asked[name], mode, 0o666)
        os.dup2(opened, fd)
        os.close(opened)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        os.fdopen(2, "wb", closefd=False), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    try:
        code = main(asked["arguments"])
        sys.stdout.flush()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    serve()
