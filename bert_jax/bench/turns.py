"""Contenders that take turns, each in a process of its own, timed beside the load of the machine.

In one process idle threads of one library, which spin for a while, would slow down another's turn. CPU seconds do not
grow when other programs want the cores; the CPU seconds of those tell a busy machine.

Neighbouring turns met the same machine, so what is compared is their ratio: the median over the rounds, with a 95%
interval between two of the ratios in order (that of the sign test, which asks nothing of how they are distributed and
needs six rounds). For two to five rounds it is Student's t interval, which assumes that the logarithms of the ratios
are normally distributed. Rounds go on until at least six give a narrow interval or the time is spent; stopping there
makes it a little more hopeful than its 95%.
"""

import math
import multiprocessing
import os
import resource
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from bert_jax.errors import BertJaxError

PAUSE = 0.3  # seconds before a turn: until then OpenMP's threads spin after the turn before
BUSY = 0.1  # share of the cores that other programs may use
CONFIDENCE = 0.95  # of an interval
FEWEST = 6  # rounds of a sign test: all six ratios above the median, or all below, have a chance of 1/32
NARROW = 1.1  # an interval whose ends are closer than that is narrow


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
        # The load may be that of a measurement just before, so it counts only where nothing else is known.
        busy = self.load > self.cores if others is None else others > BUSY * self.cores
        kept = bool(os.environ.get("JAX_COMPILATION_CACHE_DIR"))  # then a first call may find its program
        return {"cores": self.cores, "load": self.load, "others": others, "busy": busy, "programs_kept": kept}


def describe(machine: dict) -> str:
    others = "an unknown number" if machine["others"] is None else f"{machine['others']:.2f}"
    line = f"machine: load {machine['load']:.1f} before, other programs used {others} of {machine['cores']} cores"
    kept = (
        "; JAX_COMPILATION_CACHE_DIR is set, so compile times may be too short"
        if machine["programs_kept"]
        else ""
    )
    return line + " meanwhile" + (" - BUSY: measure again when it is quiet" if machine["busy"] else "") + kept


def in_turn(
    contenders: Mapping[str, Callable], calls: Iterable[tuple], twice: bool = False
) -> Iterator[tuple[str, Any, Turn]]:
    """(name, result, turn) of each call by each contender, in alternation.

    With `twice` the second of two calls counts: while a contender waits for its turn, a virtual machine may take the
    memory back that it has freed, and the next call fetches it again.
    """
    for arguments in calls:
        for name, contender in contenders.items():
            if twice:
                contender(*arguments)
            yield name, *contender(*arguments)


@dataclass(frozen=True)
class Limits:
    """How often a comparison is repeated."""

    least: int  # rounds that are taken in any case
    seconds: float  # after which no round begins

    def allow(self, rounds: int, since: float, ratios: Callable[[], Iterable["Ratio"]]) -> bool:
        """Whether one more round is to be taken, after so many since that time."""
        if rounds < self.least:
            return True
        return time.monotonic() - since < self.seconds and not all(ratio.narrow for ratio in ratios())


@dataclass(frozen=True)
class Ratio:
    """How many times as long the others take: the median of neighbouring turns, and its 95% interval."""

    median: float
    low: float | None  # None: one round has no interval
    high: float | None
    rounds: int

    @property
    def narrow(self) -> bool:
        if self.rounds < FEWEST or self.low is None or self.high is None:
            return False
        return self.high <= NARROW * self.low

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.median:.2f} (one round, no interval)"
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Of the seconds of each round.

    >>> str(ratio([1] * 8, [3, 1, 2, 5, 4, 8, 7, 6]))
    '4.50 (1.00 to 8.00)'
    """
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    n, median = len(ratios), float(np.median(ratios))
    if n == 1:
        return Ratio(median, None, None, n)
    if n < FEWEST:
        logs = np.log(ratios)
        reach = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * logs.std(ddof=1) / n**0.5
        return Ratio(median, float(np.exp(logs.mean() - reach)), float(np.exp(logs.mean() + reach)), n)
    # The k lowest and the k highest lie outside: the median does so, too, if less than k coins of n show heads.
    outside, tail = 0, 0.5**n
    while 2 * tail <= 1 - CONFIDENCE:
        outside += 1
        tail += math.comb(n, outside) * 0.5**n
    return Ratio(median, ratios[outside - 1], ratios[n - outside], n)


def compared(
    contenders: Mapping[str, Callable],
    calls: Iterable[tuple],
    limits: Limits,
    value: Callable[[Any, Turn], float],
    twice: bool = False,
) -> Iterator[tuple[str, Any, Turn]]:
    """As `in_turn`, until the ratios of the values to the first contender's are narrow, or the time is spent."""
    begun, values = time.monotonic(), {name: list[float]() for name in contenders}

    def ratios() -> list[Ratio]:
        ours, *others = values.values()
        return [ratio(ours, theirs) for theirs in others]

    for number, arguments in enumerate(calls):
        if not limits.allow(number, begun, ratios):
            return
        for name, result, turn in in_turn(contenders, [arguments], twice):
            values[name].append(value(result, turn))
            yield name, result, turn


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
