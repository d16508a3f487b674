"""Ctrl-C, SIGTERM and SIGHUP that are heard wherever they arrive."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import popen_spawn_posix
from types import FrameType

# Where an exception must not arrive: compiled modules may abort where it stops their beginning, and a process that is
# started would read half of what it has to know.
UNINTERRUPTED = {"<frozen importlib._bootstrap>", popen_spawn_posix.__file__}


@contextmanager
def interruptible():
    """While open, Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt(signal number), every 2 s until it is heard.

    Python drops an exception that arrives in a callback of the garbage collector, where JAX has one, and compiled
    libraries may drop an exception that arrives in theirs.
    """
    first = []

    def interrupt(number, frame):
        first.append(number)
        if UNINTERRUPTED & set(files_of(frame)):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        signal.setitimer(signal.ITIMER_REAL, 2)
        raise KeyboardInterrupt(first[0])

    def show_others(unraisable):
        # The second is what a save that failed tells loops that have ended; the failure itself is reported.
        if (
            unraisable.exc_type is not KeyboardInterrupt
            and str(unraisable.exc_value) != "Event loop is closed"
        ):
            sys.__unraisablehook__(unraisable)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` asks
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    sys.unraisablehook = show_others
    try:
        yield
    except Exception as error:
        if first:  # modules and libraries turn an interrupt into errors of theirs
            raise KeyboardInterrupt(first[0]) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in before.items():
            signal.signal(number, handler)


def files_of(frame: FrameType | None) -> Iterator[str]:
    """Of a frame and its callers."""
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back
