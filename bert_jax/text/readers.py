"""Documents from files: plain text, JSON lines, parquet, and TensorFlow Datasets.

Inputs are files, folders (all files below), globs, and `tfds:NAME/CONFIG:SPLIT`. Their order is fixed (as
given, sorted inside a folder or glob), so the same inputs give the same documents in the same order.
"""

import bz2
import glob
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bert_jax.errors import BertJaxError, first_line, nearest

Layout = Literal["blank", "file", "sentences"]
LONGEST_LINE = 4 << 20  # bytes; prose has no such lines, and each costs its length many times over in memory
LONGEST_DOCUMENT = 16 << 20  # bytes


@dataclass
class Source:
    """What to read and how, and what was met on the way.

    `layout` is how plain text marks its documents: "blank" lines between them with a paragraph on each line,
    one "file" each, or Google's "sentences": one on each line, blank lines between documents.
    """

    inputs: Sequence[str]
    layout: Layout = "blank"
    column: str = "text"
    strict: bool = False
    files: list[str] = field(default_factory=list)
    read_bytes: int = 0  # of the files on disk, for progress
    broken_lines: int = 0
    empty_files: int = 0
    cut_documents: int = 0

    def __post_init__(self):
        self.files = expanded(self.inputs)

    @property
    def total_bytes(self) -> int:
        return sum(os.path.getsize(file) for file in self.files if not file.startswith("tfds:"))

    def documents(self) -> Iterator[str]:
        for name in self.files:
            before, any_text = self.read_bytes, False
            for text in self._read(name):
                if text and not text.isspace():
                    any_text = True
                    yield text
            if not any_text:
                self._odd(f"{name} is empty", "remove it from the inputs")
                self.empty_files += 1
            if not name.startswith("tfds:"):
                self.read_bytes = before + os.path.getsize(name)

    def _read(self, name: str) -> Iterator[str]:
        if name.startswith("tfds:"):
            return self._tfds(name)
        plain = name.removesuffix(Path(name).suffix) if Path(name).suffix in OPENERS else name
        if plain.endswith(".parquet"):
            return self._parquet(name)
        if plain.endswith((".jsonl", ".ndjson")):
            return self._jsonl(name)
        return self._text(name)

    def _text(self, name: str) -> Iterator[str]:
        lines: list[str] = []
        size = 0
        for line in self._lines(name):
            if (self.layout != "file" and not line.strip()) or size > LONGEST_DOCUMENT:
                self.cut_documents += bool(line.strip())
                yield "\n".join(lines)
                lines, size = [], 0
            lines.append(line)
            size += len(line)
        yield "\n".join(lines)

    def _jsonl(self, name: str) -> Iterator[str]:
        for number, line in enumerate(self._lines(name), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BertJaxError(
                    f"{name} line {number} is not JSON ({error}); one object a line is wanted"
                ) from error
            if not isinstance(row, dict) or self.column not in row:
                known = row if isinstance(row, dict) else ()
                raise BertJaxError(
                    f'{name} line {number} has no column "{self.column}"; {nearest(self.column, known)}'
                )
            yield self._text_of(row[self.column], f"{name} line {number}")

    def _parquet(self, name: str) -> Iterator[str]:
        import pyarrow
        from pyarrow import parquet

        start, size = self.read_bytes, os.path.getsize(name)
        try:
            table = parquet.ParquetFile(name)
            if self.column not in table.schema_arrow.names:
                raise BertJaxError(
                    f'{name} has no column "{self.column}"; {nearest(self.column, table.schema_arrow.names)}'
                )
            rows = 0
            for batch in table.iter_batches(batch_size=256, columns=[self.column]):
                for value in batch.column(0):
                    yield self._text_of(value.as_py(), name)
                rows += len(batch)
                self.read_bytes = start + size * rows // table.metadata.num_rows
        except pyarrow.ArrowException as error:
            raise BertJaxError(
                f"{name} cannot be read as parquet ({first_line(error)}); fetch it again"
            ) from error

    def _tfds(self, name: str) -> Iterator[str]:
        from bert_jax.text.tensorflow_datasets import texts

        for text in texts(name, self.column):
            yield self._text_of(text, name)

    def _text_of(self, value, where: str) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise BertJaxError(
                f'{where}: column "{self.column}" holds {type(value).__name__}, not text; name another'
            )
        if len(value) > LONGEST_DOCUMENT:
            raise BertJaxError(f"{where}: a text of {len(value) >> 20} MB; cut it into documents first")
        return value

    def _lines(self, name: str) -> Iterator[str]:
        start = self.read_bytes
        try:
            with open(name, "rb") as raw, opened(name, raw) as file:
                number = 0
                while line := file.readline(LONGEST_LINE + 1):
                    number += 1
                    if len(line) > LONGEST_LINE:
                        raise BertJaxError(
                            f"{name} line {number} is longer than {LONGEST_LINE >> 20} MB; break it into "
                            "lines or documents first"
                        )
                    if b"\0" in line:
                        raise BertJaxError(
                            f"{name} line {number} has NUL bytes: binary or UTF-16, not UTF-8 text"
                        )
                    self.read_bytes = start + raw.tell()
                    yield self._decoded(line, f"{name} line {number}").rstrip("\r\n").removeprefix("\ufeff")
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise BertJaxError(f"{name} cannot be read ({first_line(error)}); fetch it again") from error

    def _decoded(self, line: bytes, where: str) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            self._odd(
                f"{where} is not UTF-8",
                "convert the file, or leave --strict away to have it replaced by \ufffd",
            )
            self.broken_lines += 1
            return line.decode("utf-8", errors="replace")

    def _odd(self, what: str, remedy: str) -> None:
        """Counted and said at the end, or refused."""
        if self.strict:
            raise BertJaxError(f"{what}; {remedy}")


def expanded(inputs: Sequence[str]) -> list[str]:
    """Files and tfds names of inputs, each once."""
    files: dict[str, None] = {}
    for given in map(str, inputs):
        if given.startswith("tfds:") or os.path.isfile(given):
            found = [given]
        elif os.path.isdir(given):
            below = (path for path in Path(given).rglob("*") if path.is_file())
            found = sorted(str(path) for path in below if not any(part[0] == "." for part in path.parts[1:]))
        else:
            found = sorted(path for path in glob.glob(given, recursive=True) if os.path.isfile(path))
        if not found:
            raise BertJaxError(
                f"no file at {given}; give files, folders, globs in quotes, or tfds:NAME/CONFIG:SPLIT"
            )
        files |= dict.fromkeys(found)
    return list(files)


def opened(name: str, raw: io.BufferedReader) -> io.BufferedIOBase:
    return OPENERS.get(Path(name).suffix, lambda raw: raw)(raw)


def zstd(raw: io.BufferedReader) -> io.BufferedIOBase:
    # Not zstandard's own reader: it takes a file that is cut off for one that ends there.
    import pyarrow

    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd"))


OPENERS: dict[str, Callable[[io.BufferedReader], io.BufferedIOBase]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": zstd,
}
