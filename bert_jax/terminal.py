"""Lines for people: a terminal gets them broken between words, a file or a pipe as they are."""

import os
import re
import shutil
import sys
import textwrap
from contextlib import suppress
from typing import TextIO

INDENT = 4  # of what goes on in the next line
LEAST, MOST = 60, 100  # columns of a table
PLAIN, BOLD = "\x1b[0m", "\x1b[1m"
CYAN, GREEN, RED, YELLOW = "\x1b[36m", "\x1b[32m", "\x1b[31m", "\x1b[33m"


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width() -> int:
    """Columns of a table; 80 where nobody watches."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    return min(max(columns, LEAST), MOST)


def say(text: str, file: TextIO | None = None) -> None:
    """Print to standard output, or to `file`, at once."""
    file = file or sys.stdout
    print(in_width(text, file), file=file, flush=True)


def hides_bars() -> bool | None:
    """tqdm's `disable`: progress bars are for a terminal, and for a notebook, whose output is none."""
    return False if "ipykernel" in sys.modules else None


def in_width(text: str, file: TextIO, indent: int = INDENT, short_paths: bool = True) -> str:
    """The text as `file` shows it: on a terminal paths are short, and each line ends with a whole word."""
    if not file.isatty():
        return text
    if short_paths:
        with suppress(OSError):  # the working directory was removed
            text = with_short_paths(text, os.getcwd(), os.path.expanduser("~"))
    return broken(text, shutil.get_terminal_size().columns, indent)


def with_short_paths(text: str, here: str, home: str) -> str:
    """Paths below the working directory as it sees them, and others of one's own below ~, which a shell expands at the
    start of a word alone.

    >>> with_short_paths("/home/ada/runs/a and /home/ada/b, --model=/home/ada/b", "/home/ada/runs", "/home/ada")
    'a and ~/b, --model=/home/ada/b'
    """
    for folder, before, short in ((here, r"[\s(\"'=]", ""), (home, r"[\s(]", "~/")):
        if folder.strip("/"):
            text = re.sub(rf"(^|{before}){re.escape(folder)}/(?=[^\s/])", rf"\1{short}", text)
    return text


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
