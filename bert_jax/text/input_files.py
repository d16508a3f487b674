"""Inputs that users name: files, folders, globs, TensorFlow Datasets, Hugging Face data sets; compressed or not."""

import bz2
import glob
import gzip
import io
import lzma
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bert_jax.core.bucket import is_bucket, without_options
from bert_jax.core.errors import BertJaxError
from bert_jax.text import hub_datasets
from bert_jax.text.memory_tables import MEMORY_PREFIX

NOT_FILES = ("tfds:", MEMORY_PREFIX)  # prefixes of sources that are not opened as files
HIDDEN = re.compile(r"(^|/)\.")


def expand_inputs(inputs: Sequence[str]) -> list[str]:
    """List the files and the tfds: and memory: names of the inputs, without duplicates, in the order of the inputs; the
    files of a folder or glob are sorted."""
    files: dict[str, None] = {}
    for given in map(str, inputs):
        pattern = hub_datasets.fetch(given) if given.startswith(hub_datasets.HUB_PREFIX) else given
        if pattern.startswith(NOT_FILES) or os.path.isfile(pattern):
            names = [pattern]
        elif os.path.isdir(pattern):
            below = (path for path in Path(pattern).rglob("*") if path.is_file())
            names = sorted(str(path) for path in below if not HIDDEN.search(str(path.relative_to(pattern))))
        else:
            names = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
        if not names and is_bucket(pattern):
            raise BertJaxError(
                f"{without_options(given)}: predict, embed and prepare read a bucket with --ray; copy the files here"
            )
        if not names:
            raise BertJaxError(f"no file at {given}; give files, folders, globs or tfds:NAME/CONFIG:SPLIT")
        files |= dict.fromkeys(names)
    return list(files)


def file_extension(name: str) -> str:
    """Return the ending of a file's name in lower case, below the ending of a compression.

    >>> file_extension("Reviews.JSONL.GZ")
    '.jsonl'
    """
    path = Path(name.lower())
    return (Path(path.stem) if path.suffix in DECOMPRESS else path).suffix


def decompressed(name: str, raw: io.BufferedReader) -> io.BufferedIOBase:
    return DECOMPRESS.get(Path(name.lower()).suffix, lambda raw: raw)(raw)


def zstd(raw: io.BufferedReader) -> io.BufferedIOBase:
    # Not zstandard's own reader: it accepts a truncated file as complete.
    import pyarrow

    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd"))


DECOMPRESS: dict[str, Callable[[io.BufferedReader], io.BufferedIOBase]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": zstd,
}
