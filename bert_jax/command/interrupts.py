"""Ctrl-C that is heard wherever it arrives."""

import signal
import sys
from contextlib import contextmanager


@contextmanager
def interruptible():
    """While open, a Ctrl-C is raised again every other second until it is heard.

    Python drops an exception that arrives in a callback of the garbage collector, where JAX has one, and compiled
    libraries may drop one that arrives in theirs.
    """

    def interrupt(number, frame):
        signal.setitimer(signal.ITIMER_REAL, 2)
        raise KeyboardInterrupt

    def tell(unraisable):
        if unraisable.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(unraisable)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGALRM)}
    sys.unraisablehook = tell
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in before.items():
            signal.signal(number, handler)
