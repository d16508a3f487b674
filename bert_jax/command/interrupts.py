"""Ctrl-C, SIGTERM and SIGHUP that are heard wherever they arrive."""

import signal
import sys
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible():
    """While open, Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt(signal number), every 2 s until it is heard.

    Python drops an exception that arrives in a callback of the garbage collector, where JAX has one, and compiled
    libraries may drop an exception that arrives in theirs.
    """
    first = []

    def interrupt(number, frame):
        first.append(number)
        if is_importing(frame):  # compiled modules may abort where an exception stops their beginning
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


def is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None
