"""Standard input of this process."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TextIO


def set_stdin(monkeypatch, content: bytes | str):
    content = content.encode() if isinstance(content, str) else content
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@contextmanager
def piped_stdin(monkeypatch) -> Iterator[TextIO]:
    """The file whose lines come out of standard input. It ends if nothing is read from it for long."""
    read, write = os.pipe()
    with open(read) as stdin, open(write, "w", buffering=1) as lines:
        monkeypatch.setattr(sys, "stdin", stdin)
        end = Timer(30, lines.close)
        end.start()
        yield lines
        end.cancel()
