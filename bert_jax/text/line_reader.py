"""Read lines of files and of standard input: decompress and decode them; errors name file and line."""

import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.text.input_files import decompress

LONGEST_LINE = 256 << 20  # bytes; a line takes several times its length in memory
REMEDY = "convert it to UTF-8 text"
READ_REMEDIES: dict[type, str] = {
    IsADirectoryError: "name a file, not a folder",
    PermissionError: "check its permissions",
}
# Files that begin with these bytes are not text, even if the bytes could be.
BINARY = {b"PK\3\4": "a zip archive (as .xlsx and .docx are)", b"PAR1": "a Parquet file", b"%PDF": "a PDF"}


class NotTextError(BertJaxError):
    """Raised for a file that is binary or in UTF-16."""


class LineReader:
    """Reads the lines of a file, or of standard input (`-`), with line ends and without the byte order mark.

    A line that is not UTF-8 is an error; with `replace`, its broken bytes become U+FFFD, and it is counted in `broken`.
    A line with NUL is always an error: UTF-16 and binary files have NUL bytes, texts do not. A line of more than
    `longest` bytes is an error, and its rest is not read into memory; 0: no limit. `remedy` ends the messages about
    files that are not UTF-8 text.
    """

    def __init__(
        self,
        source: str,
        replace: bool = False,
        longest: int = LONGEST_LINE,
        remedy: str = REMEDY,
        file: BinaryIO | None = None,
    ):
        """Prepare to read `source`; `file` is standard input, if it was opened elsewhere."""
        self.source, self.replace, self.longest, self.remedy = source, replace, longest, remedy
        self.file = file
        self.name = "standard input" if source == "-" else source
        self.broken = 0
        self.position = lambda: 0  # number of bytes read so far from the file on disk

    def __iter__(self) -> Iterator[str]:
        with explain_read_errors(self.name):
            if self.source == "-":
                yield from self._decode_lines(self.file or standard_input())
                return
            with open(self.source, "rb") as raw, decompress(self.source, raw) as file:
                self.position = raw.tell
                yield from self._decode_lines(file)

    def _decode_lines(self, file) -> Iterator[str]:
        lines = iter(partial(file.readline, self.longest + 1), b"") if self.longest else file
        encoding = "utf-8-sig"
        for number, line in enumerate(lines, 1):
            if number == 1 and (binary := BINARY.get(line[:4])):
                raise NotTextError(f"{self.name} is {binary}, not a text file; {self.remedy}")
            if 0 < self.longest < len(line):
                most = self.longest >> 20
                raise BertJaxError(f"{self.name} line {number} is longer than {most} MB; break it into lines")
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                if not self.replace:
                    where, byte = f"{self.name} line {number}", error.start + 1
                    raise BertJaxError(f"{where} is not UTF-8 (its byte {byte}); {self.remedy}") from error
                self.broken += 1
                text = line.decode(encoding, errors="replace")
            if "\0" in text:
                raise NotTextError(
                    f"{self.name} line {number} has NUL bytes: binary or UTF-16, not UTF-8 text; {self.remedy}"
                )
            yield text
            encoding = "utf-8"


@contextmanager
def explain_read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, FileNotFoundError):
            raise BertJaxError(f"no file at {name}; check the path") from error
        remedy = READ_REMEDIES.get(type(error), "fetch it again")
        raise BertJaxError(f"{name} cannot be read ({first_line(error)}); {remedy}") from error


def begins_with(name: str, start: bytes) -> bool:
    with explain_read_errors(name), open(name, "rb") as raw, decompress(name, raw) as file:
        return file.read(len(start)) == start


def standard_input():
    if sys.stdin is None:
        raise BertJaxError("standard input is closed; direct texts to it, or name a file")
    return sys.stdin.buffer


def read_lines(source: str) -> Iterator[str]:
    """Yield the lines, one text each, as they arrive; `-` is standard input. An input without lines is an error."""
    reader, empty = LineReader(source), True
    for line in reader:
        empty = False
        yield line.rstrip("\r\n")
    if empty:
        raise BertJaxError(f"the input is empty: {reader.name} has no line of text")
