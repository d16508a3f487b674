"""Printed lines, of the log or of results: wrapped between words on a terminal, unchanged in a file or a pipe."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from bert_jax.core.arguments import WRITTEN, spell_as_arguments

INDENT = 4  # columns, of continuation lines
LEAST, MOST = 60, 100  # bounds of the width of a table, in columns
RUN_PREFIX: ContextVar[str] = ContextVar("part", default="")  # of each line: the current part of a run
PARTS_AFTER: ContextVar[int] = ContextVar("parts", default=0)  # parts of the run that follow the current one
IS_SILENT: ContextVar[bool] = ContextVar("silent", default=False)
RESET, BOLD = "\x1b[0m", "\x1b[1m"
CYAN, GREEN, RED, YELLOW = "\x1b[36m", "\x1b[32m", "\x1b[31m", "\x1b[33m"


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def table_width() -> int:
    """The width of a table in columns; 80 if the output is not a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    return min(max(columns, LEAST), MOST)


@contextmanager
def part_of_run(name: str, parts_after: int = 0) -> Iterator[None]:
    """Within the block, lines begin with the name of this part of a run, such as "fold 2 of 5", and details are left
    out. `parts_after` is the number of parts like it that follow."""
    prefix, after = RUN_PREFIX.set(f"{name}: "), PARTS_AFTER.set(parts_after)
    try:
        yield
    finally:
        RUN_PREFIX.reset(prefix)
        PARTS_AFTER.reset(after)


@contextmanager
def no_lines() -> Iterator[None]:
    """Within the block, nothing is printed."""
    token = IS_SILENT.set(True)
    try:
        yield
    finally:
        IS_SILENT.reset(token)


def add_run_prefix(text: str) -> str:
    """Put the current part of the run before the text; in a run from Python, spell settings as arguments."""
    return RUN_PREFIX.get() + (spell_as_arguments(text) if WRITTEN.get() == "python" else text)


def print_line(text: str, file: TextIO | None = None) -> None:
    """Print a line about what a command does, or how far it is, to the log or to `file`, and flush.

    Results, which another program may read, are printed to standard output, and nothing else is.
    """
    if IS_SILENT.get():
        return
    file = file or log_file()
    print(wrap_for_terminal(add_run_prefix(text), file), file=file, flush=True)


def print_detail(text: str) -> None:
    """Print a line that a part of a larger run leaves out, because it would repeat it for each part."""
    if not RUN_PREFIX.get():
        print_line(text)


def pluralize(number: int, noun: str) -> str:
    """
    >>> pluralize(1, "text"), pluralize(1200, "batch")
    ('1 text', '1,200 batches')
    """
    plural = noun + ("es" if noun.endswith(("h", "s")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def is_notebook() -> bool:
    return "ipykernel" in sys.modules


def log_file() -> TextIO:
    """The file for all lines but results: standard error, but not in a notebook, which would show them as errors."""
    return sys.stdout if is_notebook() else sys.stderr


def wrap_for_terminal(text: str, file: TextIO, indent: int = INDENT) -> str:
    """Format the text for `file`: on a terminal, wrap lines between words."""
    if not file.isatty():
        return text
    return wrap_lines(text, shutil.get_terminal_size().columns, indent)


def wrap_lines(text: str, width: int, indent: int = INDENT) -> str:
    """
    >>> print(wrap_lines("step 20 validation: accuracy 0.25, f1_macro 0.07", 30))
    step 20 validation: accuracy
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
