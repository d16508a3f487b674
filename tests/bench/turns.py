"""Let contenders take turns, each in its own process, and compare their times.

In a shared process, the idle threads of one library, which spin for a while, would slow down another library's turn.

Neighbouring turns run under the same conditions, so their ratio is compared: the median over the rounds, with a 95%
interval. From six rounds on, this is the interval of the sign test, between two of the sorted ratios; it assumes
nothing about their distribution. For two to five rounds it is Student's t interval, which assumes that the logarithms
of the ratios are normally distributed. Rounds continue until at least six give a narrow interval or the time is up.
Stopping at that point makes the interval cover the median in slightly less than 95% of cases.
"""

import math
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.special import stdtrit

from bert_jax.bench.timing import Turn, timed
from bert_jax.core.errors import BertJaxError

PAUSE = 0.3  # seconds before a turn, in which OpenMP's threads of the previous turn stop spinning
CONFIDENCE = 0.95  # of an interval
FEWEST = 6  # rounds that the sign test needs: six ratios are all on one side of the median with a probability of 1/32
NARROW = 1.1  # an interval is narrow if its upper end is at most this many times its lower end
OURS = "bert_jax"  # contenders with this name, or with this name and a dtype, are compared with the others


@dataclass(frozen=True)
class Limits:
    """When a comparison stops."""

    rounds: int  # minimum number of rounds
    seconds: float  # after this time no round starts

    def allow(self, rounds: int, since: float, ratios: Callable[[], Iterable["Ratio"]]) -> bool:
        """Whether to start another round, after `rounds` rounds since the time `since`."""
        if rounds < self.rounds:
            return True
        return time.monotonic() - since < self.seconds and not all(ratio.narrow for ratio in ratios())


@dataclass(frozen=True)
class Ratio:
    """How many times as long another contender takes as ours: the median over the rounds, and its 95% interval."""

    median: float
    low: float | None  # None after a single round
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
    """Return the ratio of their seconds to ours, which are given for each round."""
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    n, median = len(ratios), float(np.median(ratios))
    if n == 1:
        return Ratio(median, None, None, n)
    if n < FEWEST:
        logs = np.log(ratios)
        reach = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * logs.std(ddof=1) / n**0.5
        return Ratio(median, float(np.exp(logs.mean() - reach)), float(np.exp(logs.mean() + reach)), n)
    # The interval goes from the k-th lowest to the k-th highest ratio, where k is `outside`. It misses the true median
    # if fewer than k of n coins show heads, or fewer than k show tails.
    outside, tail = 0, 0.5**n
    while 2 * tail <= 1 - CONFIDENCE:
        outside += 1
        tail += math.comb(n, outside) * 0.5**n
    return Ratio(median, ratios[outside - 1], ratios[n - outside], n)


def is_ours(name: str) -> bool:
    return name.split()[0] == OURS


def interleaved(
    contenders: Mapping[str, Callable],
    calls: Iterable[tuple],
    limits: Limits,
    value: Callable[[Any, Turn], float] = lambda _, turn: turn.seconds,
    twice: bool = False,
) -> Iterator[tuple[str, Any, Turn]]:
    """Make each call with every contender in turn; yield (name, result, turn).

    Go on until the ratios of all others' values to those of all of ours are narrow, or the time is up. With `twice`, a
    contender makes each call twice, and the second counts: while it waits for its turn, a virtual machine may take back
    memory that it has freed, and the first call has to fetch it again.
    """
    start, values = time.monotonic(), {name: list[float]() for name in contenders}
    ours = [name for name in contenders if is_ours(name)]
    pairs = list(product(ours, [name for name in contenders if name not in ours]))
    for number, arguments in enumerate(calls):
        if not limits.allow(number, start, lambda: (ratio(values[a], values[b]) for a, b in pairs)):
            return
        for name, contender in contenders.items():
            if twice:
                contender(*arguments)
            result, turn = contender(*arguments)
            values[name].append(value(result, turn))
            yield name, result, turn


@contextmanager
def running_processes(makers: Mapping[str, tuple]) -> Iterator[dict[str, "Contender"]]:
    """Start a contender for each name: (maker, *arguments). They end with the block, whatever they are doing."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(Contender(*maker))) for name, maker in makers.items()}


class Contender:
    """A function in its own process; a call returns its result and its turn."""

    def __init__(self, make: Callable, *arguments):
        """Start the process; the function is `make(*arguments)`."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.scratch = tempfile.TemporaryDirectory()
        work = (theirs, self.scratch.name, make, arguments)
        self.process = context.Process(target=serve, args=work, daemon=True)
        self.process.start()
        theirs.close()
        self.works = True
        try:
            self._answer()  # wait until it is ready
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
        """End the process, at once if it is busy."""
        self.pipe.close()
        self.process.join(timeout=0 if self.works else 10)
        if self.process.is_alive() and self.process.pid:
            with suppress(ProcessLookupError):  # it may not have its own process group yet
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
        self.process.join()
        self.scratch.cleanup()


def serve(pipe, scratch: str, make: Callable, arguments: tuple) -> None:
    """Run in a contender's process: make its function, then answer calls until the parent closes the pipe or ends."""
    os.setsid()  # Ctrl-C goes to the parent, which then ends this process
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent():
        parent.join()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    tempfile.tempdir = scratch  # deleted by the parent, however this process ends
    warnings.simplefilter("ignore")
    try:
        function = make(*arguments)
        pipe.send("ready")
        while True:
            pipe.send(timed(function, *pipe.recv()))
    except BertJaxError as error:
        pipe.send(error)
    except EOFError:
        pass  # the parent has closed the pipe
