"""Contenders that take turns, each in a process of its own, timed beside the load of the machine.

In one process idle threads of one library, which spin for a while, would slow down another's turn. CPU seconds do not
grow when other programs want the cores; the CPU seconds of those tell a busy machine.
"""

import multiprocessing
import os
import resource
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import BertJaxError

PAUSE = 0.3  # seconds before a turn: until then OpenMP's threads spin after the turn before
BUSY = 0.1  # share of the cores that other programs may use


@dataclass(frozen=True)
class Turn:
    """What one call took."""

    seconds: float
    cpu: float  # seconds of all its threads
    others: float | None = None  # CPU seconds that other programs used meanwhile, where the system tells


def timed(function: Callable, *arguments) -> tuple[Any, Turn]:
    """The function's result, and its turn."""
    before, own, begun = machine_cpu(), own_cpu(), time.perf_counter()
    result = function(*arguments)
    seconds, cpu, after = time.perf_counter() - begun, own_cpu() - own, machine_cpu()
    others = None if before is None or after is None else max(after - before - cpu, 0.0)
    return result, Turn(seconds, cpu, others)


def own_cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def machine_cpu() -> float | None:
    """CPU seconds that all programs have used, and what a hypervisor took; None where the system does not tell."""
    with suppress(OSError, ValueError):
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
        return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
    return None


@dataclass(frozen=True)
class Machine:
    """The cores, and the load before anything was measured."""

    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def during(self, turns: Iterable[Turn]) -> dict[str, float | bool | None]:
        """`others` is the number of cores that other programs used during the turns; None where it is not known."""
        turns = list(turns)
        known = [turn.others for turn in turns if turn.others is not None]
        others = sum(known) / sum(turn.seconds for turn in turns) if len(known) == len(turns) else None
        busy = self.load > self.cores or (others or 0) > BUSY * self.cores
        return {"cores": self.cores, "load": self.load, "others": others, "busy": busy}


def describe(machine: dict) -> str:
    others = "an unknown number" if machine["others"] is None else f"{machine['others']:.2f}"
    line = f"machine: load {machine['load']:.1f} before, other programs used {others} of {machine['cores']} cores"
    return line + " meanwhile" + (" - BUSY: measure again when it is quiet" if machine["busy"] else "")


def in_turn(contenders: Mapping[str, Callable], calls: Iterable[tuple]) -> Iterator[tuple[str, Any, Turn]]:
    """(name, result, turn) of each call by each contender, in alternation."""
    for arguments in calls:
        for name, contender in contenders.items():
            yield name, *contender(*arguments)


def speedups(ours: list[Turn], theirs: list[Turn]) -> np.ndarray:
    """How many times as fast we are in each pair of neighbouring turns, which met the same machine."""
    return np.array([b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True)])


@contextmanager
def contending(makers: dict[str, tuple]) -> Iterator[dict[str, "Contender"]]:
    """The contenders of `name -> (maker, its arguments)`; they end with the block, whatever they are doing."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(Contender(*maker))) for name, maker in makers.items()}


class Contender:
    """A function in a process of its own: a call gives its result and its turn."""

    def __init__(self, make: Callable, *arguments):
        """`make(*arguments)` gives the function."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.scratch = tempfile.TemporaryDirectory()
        work = (theirs, self.scratch.name, make, arguments)
        self.process = context.Process(target=serve, args=work, daemon=True)
        self.process.start()
        theirs.close()
        self.works = True
        try:
            self._answer()  # that it is ready
        except BaseException:
            self.close()
            raise

    def __call__(self, *arguments, pause: float = PAUSE) -> tuple[Any, Turn]:
        time.sleep(pause)
        self.works = True
        self.pipe.send(arguments)
        return self._answer()

    def _answer(self):
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise BertJaxError("a contender's process ended; its last message is above") from None
        self.works = False
        if isinstance(answer, BertJaxError):
            raise answer
        return answer

    def close(self) -> None:
        """Ends the process, at once if it works."""
        self.pipe.close()
        self.process.join(timeout=0 if self.works else 10)
        if self.process.is_alive() and self.process.pid:
            with suppress(ProcessLookupError):  # before it has a group of its own
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
        self.process.join()
        self.scratch.cleanup()


def serve(pipe, scratch: str, make: Callable, arguments: tuple) -> None:
    """A contender's process: it makes its function, then answers calls until its parent ends."""
    os.setsid()  # Ctrl-C is for the parent, which ends us
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent():
        parent.join()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    tempfile.tempdir = scratch  # deleted by the parent, however we end
    warnings.simplefilter("ignore")
    try:
        function = make(*arguments)
        pipe.send("ready")
        while True:
            pipe.send(timed(function, *pipe.recv()))
    except BertJaxError as error:
        pipe.send(error)
    except EOFError:
        pass  # nothing more is asked
