"""Lines for people: a terminal gets them broken between words, a file or a pipe as they are."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

INDENT = 4  # of what goes on in the next line
LEAST, MOST = 60, 100  # columns of a table
PART: ContextVar[str] = ContextVar("part", default="")  # of a run, before each of its lines
PLAIN, BOLD = "\x1b[0m", "\x1b[1m"
CYAN, GREEN, RED, YELLOW = "\x1b[36m", "\x1b[32m", "\x1b[31m", "\x1b[33m"


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width() -> int:
    """Columns of a table; 80 where nobody watches."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    return min(max(columns, LEAST), MOST)


@contextmanager
def part_of_run(name: str) -> Iterator[None]:
    """While open, each line that is said of a run begins with the name of its part, such as "fold 2 of 5"."""
    token = PART.set(f"{name}: ")
    try:
        yield
    finally:
        PART.reset(token)


def say(text: str, file: TextIO | None = None) -> None:
    """Print to standard output, or to `file`, at once."""
    file = file or sys.stdout
    print(in_width(PART.get() + text, file), file=file, flush=True)


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "text"), counted(1200, "batch")
    ('1 text', '1,200 batches')
    """
    plural = noun + ("es" if noun.endswith("h") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def hides_bars() -> bool | None:
    """tqdm's `disable`: progress bars are for a terminal, and for a notebook, whose output is none."""
    return False if "ipykernel" in sys.modules else None


def in_width(text: str, file: TextIO, indent: int = INDENT) -> str:
    """The text as `file` shows it: each line of a terminal ends with a whole word."""
    return broken(text, shutil.get_terminal_size().columns, indent) if file.isatty() else text


def broken(text: str, width: int, indent: int = INDENT) -> str:
    """
    >>> print(broken("step 20 heldout: accuracy 0.25, f1_macro 0.07", 30))
    step 20 heldout: accuracy
        0.25, f1_macro 0.07
    """
    lines = (
        textwrap.wrap(
            line,
            max(width, 2 * indent + 1),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
        or [""]
        for line in text.split("\n")
    )
    return "\n".join("\n".join(parts) for parts in lines)
