"""Handle Ctrl-C, SIGTERM and SIGHUP reliably, wherever they arrive."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import popen_spawn_posix
from types import FrameType

# Code in which no exception may be raised: compiled modules may abort if their import is interrupted, and a process
# that is being started would get only a part of its start data.
UNINTERRUPTED = {"<frozen importlib._bootstrap>", popen_spawn_posix.__file__}


@contextmanager
def interruptible():
    """Within the context, Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt(signal number), repeated every 2 s.

    It is repeated because Python drops an exception raised in a callback of the garbage collector, such as JAX has, and
    compiled libraries may drop an exception raised in their callbacks. It stops when the context is left.
    """
    first = []

    def interrupt(number, frame):
        first.append(number)
        if UNINTERRUPTED & set(source_files(frame)):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        signal.setitimer(signal.ITIMER_REAL, 2)
        raise KeyboardInterrupt(first[0])

    def show_others(unraisable):
        # After a failed save an event loop may report that it is closed; the failure itself is reported elsewhere.
        if (
            unraisable.exc_type is not KeyboardInterrupt
            and str(unraisable.exc_value) != "Event loop is closed"
        ):
            sys.__unraisablehook__(unraisable)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup` has set it to be ignored
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    sys.unraisablehook = show_others
    try:
        yield
    except Exception as error:
        if first:  # modules and libraries turn an interrupt into errors of their own
            raise KeyboardInterrupt(first[0]) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in before.items():
            signal.signal(number, handler)


def source_files(frame: FrameType | None) -> Iterator[str]:
    """Yield the source files of a frame and its callers."""
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back
