"""Printed lines: wrapped between words on a terminal, unchanged in a file or a pipe."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO

from bert_jax.core.arguments import as_called

INDENT = 4  # columns, of continuation lines
LEAST, MOST = 60, 100  # bounds of the width of a table, in columns
PART: ContextVar[str] = ContextVar("part", default="")  # the prefix of each line: the current part of a run
PLAIN, BOLD = "\x1b[0m", "\x1b[1m"
CYAN, GREEN, RED, YELLOW = "\x1b[36m", "\x1b[32m", "\x1b[31m", "\x1b[33m"


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width() -> int:
    """The width of a table in columns; 80 if the output is not a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    return min(max(columns, LEAST), MOST)


@contextmanager
def part_of_run(name: str) -> Iterator[None]:
    """Within the block, each printed line of a run begins with the name of its part, such as "fold 2 of 5"."""
    token = PART.set(f"{name}: ")
    try:
        yield
    finally:
        PART.reset(token)


def of_run(text: str) -> str:
    """Put the current part of the run before the text; in a run from Python, spell settings as arguments."""
    return PART.get() + as_called(text)


def say(text: str, file: TextIO | None = None) -> None:
    """Print to standard output or to `file`, and flush."""
    file = file or sys.stdout
    print(in_width(of_run(text), file), file=file, flush=True)


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "text"), counted(1200, "batch")
    ('1 text', '1,200 batches')
    """
    plural = noun + ("es" if noun.endswith(("h", "s")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def is_notebook() -> bool:
    return "ipykernel" in sys.modules


def hides_bars() -> bool | None:
    """The value of tqdm's `disable`: show progress bars on a terminal, and in a notebook, whose output is not one."""
    return False if is_notebook() else None


def log_file() -> TextIO:
    """The file for the lines of a run: standard error, but not in a notebook, which would show the lines as errors."""
    return sys.stdout if is_notebook() else sys.stderr


def in_width(text: str, file: TextIO, indent: int = INDENT, short_paths: bool = True) -> str:
    """Format the text for `file`: on a terminal, shorten paths and wrap lines between words."""
    if not file.isatty():
        return text
    if short_paths:
        with suppress(OSError):  # the working directory was removed
            text = with_short_paths(text, os.getcwd(), os.path.expanduser("~"))
    return wrapped(text, shutil.get_terminal_size().columns, indent)


def with_short_paths(text: str, here: str, home: str) -> str:
    """Shorten paths: those below the working directory become relative, others below the home directory begin with ~.

    ~ is used only at the start of a word, because a shell expands it only there.

    >>> with_short_paths("/home/ada/runs/a and /home/ada/b, --model=/home/ada/b", "/home/ada/runs", "/home/ada")
    'a and ~/b, --model=/home/ada/b'
    """
    for folder, before, short in ((here, r"[\s(\"'=]", ""), (home, r"[\s(]", "~/")):
        if folder.strip("/"):
            text = re.sub(rf"(^|{before}){re.escape(folder)}/(?=[^\s/])", rf"\1{short}", text)
    return text


def wrapped(text: str, width: int, indent: int = INDENT) -> str:
    """
    >>> print(wrapped("step 20 heldout: accuracy 0.25, f1_macro 0.07", 30))
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
