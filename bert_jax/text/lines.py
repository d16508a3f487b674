"""Lines of a file or of standard input."""

import sys
from collections.abc import Iterator

from bert_jax.errors import BertJaxError


def lines(source: str) -> Iterator[str]:
    """One text a line, as they come; `-` is standard input."""
    if source == "-":
        yield from (line.rstrip("\r\n") for line in sys.stdin)
        return
    try:
        with open(source, encoding="utf-8", errors="replace") as file:
            yield from (line.rstrip("\r\n") for line in file)
    except OSError as error:
        raise BertJaxError(
            f"--input {source} cannot be read ({error.strerror}); name a text file, or - "
        ) from error
