"""Make the input files of `all` from published data sets: functions of (new file, files to read)."""

import csv
from collections.abc import Iterable
from pathlib import Path

from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import atomic_file
from bert_jax.text.line_reader import read_lines

WORDS = 200  # of a passage, about 256 tokens


def sentences(new: Path, table: Path) -> None:
    """Write the first column of a table that has a header."""
    write(new, (row[0].strip() for row in read_rows(table)[1:]))


def pairs_as_lines(new: Path, table: Path) -> None:
    """Write both texts of each pair in STS-B's table, without duplicates."""
    write(new, dict.fromkeys(text for row in read_rows(table) for text in row[5:7]))


def passages(new: Path, text: Path) -> None:
    """Write running text as passages with the same number of words."""
    words = [word for line in read_lines(str(text)) if not line.startswith(" =") for word in line.split()]
    write(new, (" ".join(words[at : at + WORDS]) for at in range(0, len(words) - WORDS + 1, WORDS)))


def paraphrases(new: Path, table: Path) -> None:
    """Write MRPC's pairs with GLUE's column names."""
    pairs = ((row[0].lstrip("\ufeff"), *row[3:5]) for row in read_rows(table))
    lines = ["label\tsentence1\tsentence2"]
    write(new, lines + ["\t".join(pair) for pair in pairs if pair[0].isdecimal()])


def read_rows(table: Path) -> list[list[str]]:
    read = csv.reader(read_lines(str(table)), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [row for row in read if row]


def write(new: Path, lines: Iterable[str]) -> None:
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise BertJaxError(f"no text was found for {new.name}")
    with atomic_file(new) as path:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
