"""Read documents from plain text, pages, Wikipedia articles, JSON lines, parquet, and TensorFlow Datasets.

The same inputs give the same documents in the same order.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from bert_jax.core.bucket import is_bucket, without_options
from bert_jax.core.errors import BertJaxError
from bert_jax.text import tables
from bert_jax.text.document_formats import LONGEST_DOCUMENT, Article, articles, check_length
from bert_jax.text.input_files import expand_inputs, file_extension
from bert_jax.text.line_reader import LineReader, NotTextError

Layout = Literal["blank", "file", "sentences"]
LONGEST_LINE = 4 << 20  # bytes; prose has no longer lines
COUNTS = ("empty_files", "binary_files", "broken_lines", "cut_documents")
COLUMN = "text"  # the default
COLUMNED = (".jsonl", ".ndjson", ".parquet")  # endings of files with columns
ARCHIVES = {".tar", ".tgz", ".zip"}


@dataclass
class TextSource:
    """What to read and how, and counts of what was read.

    `layout` is how plain text separates documents: "blank", by blank lines, with a paragraph on each line; "file", one
    document per file; "sentences", Google's format, by blank lines, with a sentence on each line.
    """

    inputs: Sequence[str]
    layout: Layout = "blank"
    column: str = COLUMN
    strict: bool = False
    files: list[str] = field(default_factory=list)  # by default those of the inputs
    read_bytes: int = 0  # number of bytes read from disk, for progress
    broken_lines: int = 0
    empty_files: int = 0
    cut_documents: int = 0
    binary_files: int = 0  # in folders and globs; a binary file that is itself named is an error

    def __post_init__(self):
        self.files = self.files or expand_inputs(self.inputs)
        names = [without_options(name) for name in self.files]
        has_columns = (name.startswith("tfds:") or file_extension(name) in COLUMNED for name in names)
        if self.column != COLUMN and not any(has_columns):
            raise BertJaxError(
                f'{names[0]} has no column "{self.column}": files of text have none, only {", ".join(COLUMNED)} '
                "and tfds: do; leave the column out"
            )

    def with_files(self, files: Sequence[str]) -> Self:
        """Return the source of some of the files, without their counts."""
        part = copy(self)
        part.files = list(files)
        return part

    def with_absolute_paths(self) -> Self:
        """Return the same source for a process with another working directory."""
        files, inputs = (
            [name if is_bucket(str(name)) else os.path.abspath(name) for name in names]
            for names in (self.files, self.inputs)
        )
        part = self.with_files(files)
        part.inputs = inputs
        return part

    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTS}

    def set_counts(self, counts: Mapping[str, int]) -> None:
        """Take over what was counted elsewhere."""
        for name in COUNTS:
            setattr(self, name, counts[name])

    @property
    def total_bytes(self) -> int:
        return sum(os.path.getsize(file) for file in self.files if not file.startswith("tfds:"))

    def documents(self) -> Iterator[str]:
        """Yield all documents; each call starts the counts anew."""
        self.read_bytes = self.broken_lines = self.empty_files = self.cut_documents = self.binary_files = 0
        for name in self.files:
            before, empty, binary = self.read_bytes, True, False
            try:
                for text in self._read(name):
                    if text and not text.isspace():
                        empty = False
                        yield text
            except NotTextError:
                if self.strict or not empty or name in map(str, self.inputs):
                    raise
                binary = True
            if empty and self.strict:
                raise BertJaxError(f"{name} is empty; remove it from the inputs")
            self.binary_files += binary
            self.empty_files += empty and not binary
            if not name.startswith("tfds:"):
                self.read_bytes = before + os.path.getsize(name)

    def _read(self, name: str) -> Iterator[str]:
        if name.startswith("tfds:"):
            from bert_jax.text.tensorflow_datasets import read_tfds_texts

            rows = tables.number_rows(
                name, ({self.column: text} for text in read_tfds_texts(name, self.column))
            )
        elif file_extension(name) == ".parquet":
            rows = self._parquet(name)
        elif file_extension(name) in COLUMNED:
            rows = tables.json_rows(name, self._lines(name), None if self.strict else self._count_broken)
        else:
            for article in articles(name, self._lines(name), self._plain):
                yield check_length(article.where, article.text)
            return
        for where, row in rows:
            yield check_length(where, tables.get_text_cell(where, row, self.column))

    def _plain(self, name: str, lines: Iterable[str]) -> Iterator[Article]:
        together: list[str] = []
        size = 0
        for line in lines:
            line = line.rstrip("\r\n")
            if (self.layout != "file" and not line.strip()) or size + len(line) > LONGEST_DOCUMENT:
                self.cut_documents += bool(line.strip())
                yield Article(name, "", "", "\n".join(together))
                together, size = [], 0
            together.append(line)
            size += len(line) + 1
        yield Article(name, "", "", "\n".join(together))

    def _parquet(self, name: str) -> Iterator[tuple[str, tables.Row]]:
        start, size = self.read_bytes, os.path.getsize(name)
        with tables.opened_parquet(name) as file:
            column = tables.match_column(name, dict.fromkeys(file.schema_arrow.names), self.column)
            for number, located in enumerate(tables.parquet_rows(name, file, [column]), 1):
                self.read_bytes = start + size * number // file.metadata.num_rows
                yield located

    def _count_broken(self) -> None:
        self.broken_lines += 1

    def _lines(self, name: str) -> Iterator[str]:
        start, broken = self.read_bytes, 0
        remedy = "convert it" + (", or have broken bytes replaced: leave --strict out" if self.strict else "")
        if ARCHIVES & set(Path(name.lower()).suffixes):
            remedy = "unpack the archive, and name its files"
        reader = LineReader(name, not self.strict, LONGEST_LINE, remedy)
        for line in reader:
            self.read_bytes = start + reader.position()
            self.broken_lines += reader.broken - broken
            broken = reader.broken
            yield line.removeprefix("\ufeff")
