"""What comes of reading a mutated file."""

import contextlib
import resource
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bert_jax.core.errors import BertJaxError
from tests.hostile.outcomes import LINE, LONGEST, RIGHT, SECONDS, WRONG

MEMORY_LIMIT = 3 << 30  # bytes that a file may make this process take beside what it has


@dataclass(frozen=True)
class Tried:
    kind: str
    detail: str = ""


@contextlib.contextmanager
def limited():
    """Time on the processor and memory of what a file may make of it."""

    def late(number, frame):
        raise TimeoutError

    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGPROF, late)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_LIMIT, before[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def tried(read: Callable[[], object], is_right: Callable[[object], bool]) -> Tried:
    """What came of reading a mutated file."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = read()
    except BertJaxError as error:
        text = str(error)
        if "\n" in text or len(text) > LONGEST:
            return Tried("long line", text[:500])
        return Tried(LINE, text)
    except TimeoutError:
        return Tried("hang")
    # The Rust libraries panic with what is no Exception.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Tried("traceback", repr(error)[:300])
    try:
        return Tried(RIGHT if is_right(value) else WRONG)
    except Exception as error:  # it says nothing that could be accepted
        return Tried(WRONG, repr(error)[:300])
