"""A shard of an input: the files, or the rows of a file, that one worker reads and whose output it writes."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bert_jax.core.bucket import Bucket, is_bucket, without_options
from bert_jax.core.errors import BertJaxError
from bert_jax.core.surrogates import holds_surrogates
from bert_jax.text.input_files import DECOMPRESS, HIDDEN, NOT_FILES, expand_inputs, warn_of_left_out
from bert_jax.text.tables import TABLE_EXTENSIONS

NO_DATA = "_"  # begins the names of files that are no data, such as _SUCCESS of other engines, and of our own
NO_DATA_FILE = f'file named "{NO_DATA}..."'


@dataclass(frozen=True)
class Shard:
    sources: tuple[str, ...]  # the files to read
    name: str  # of its output, below the folder of all outputs, without an ending
    size: int  # bytes to read
    original: str = ""  # the file whose rows the source holds, if that was cut
    first_row: int = 0  # the number of rows of `original` before these
    changed_ns: int = 0  # when a file in a bucket last changed
    # The addresses of the sources, if these are copies of files in a bucket.
    copied_from: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The only file of a shard that has one."""
        (source,) = self.sources
        return source

    @property
    def display_name(self) -> str:
        """The file that the user named, or the first of those, for messages."""
        return self.original or without_options((self.copied_from or self.sources)[0])

    def stat(self) -> tuple[int, int]:
        """Return the bytes of the files, and when one of them last changed."""
        if is_bucket(self.sources[0]):
            return self.size, self.changed_ns
        stats = [os.stat(source) for source in self.sources]
        return sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)

    @contextmanager
    def local_copy(self) -> "Iterator[Shard]":
        """Yield the shard itself, or one with copies of its files in a bucket, which are there while the block runs."""
        if not is_bucket(self.sources[0]):
            yield self
            return
        with TemporaryDirectory(prefix="bert-jax-") as folder:
            copies = []
            for number, bucket in enumerate(map(Bucket, self.sources)):
                copies.append(Path(folder, str(number), bucket.name))
                bucket.download(copies[-1])
            yield replace(self, sources=tuple(map(str, copies)), copied_from=self.sources)

    def name_original_rows(self, message: str) -> str:
        """Return a message with the file that the user named, and its rows, in the place of a copy or a part of it.

        >>> shard = Shard(("out/_cut/a/00001.csv",), "a-00001", 99, "a.csv", 1000)
        >>> shard.name_original_rows("out/_cut/a/00001.csv row 3 is empty")
        'a.csv row 1003 is empty'
        >>> shard = Shard(("tmp/0/a.csv", "tmp/1/b.csv"), "part", 99, copied_from=("s3://x/a.csv", "s3://x/b.csv"))
        >>> shard.name_original_rows("tmp/1/b.csv row 3 is empty")
        's3://x/b.csv row 3 is empty'
        """
        for copy, address in zip(self.sources, self.copied_from, strict=False):
            message = message.replace(copy, without_options(address))
        if not self.original:
            return message
        pattern = re.compile(re.escape(self.source) + r"(?: (row|line) (\d+))?")

        def name_location(match: re.Match) -> str:
            return (
                f"{self.original} {match[1]} {int(match[2]) + self.first_row}" if match[1] else self.original
            )

        return pattern.sub(name_location, message)


def list_shards(given: str) -> list[Shard]:
    """Return a shard for each file of a file, a folder or a glob; files that begin with "_" hold no data."""
    if is_bucket(given):
        return check_names(list_bucket_shards(given))
    if given == "-" or given.startswith(NOT_FILES):
        raise BertJaxError(
            f"--ray reads files that all machines see, not {given}; name a file, a folder or a glob"
        )
    paths = expand_inputs([given])
    files = [file for file in paths if not Path(file).name.startswith(NO_DATA)]
    warn_of_left_out(given, Counter({NO_DATA_FILE: len(paths) - len(files)}))
    if not files:
        raise BertJaxError(
            f"all files at {given} begin with {NO_DATA}, as those without data do; name others"
        )
    folders = [given] if os.path.isdir(given) else [os.path.dirname(file) or "." for file in files]
    root = os.path.commonpath(folders)
    shards = [
        Shard((file,), shard_name(os.path.relpath(file, root)), os.path.getsize(file)) for file in files
    ]
    return check_names(shards)


def list_bucket_shards(given: str) -> list[Shard]:
    shards, left_out = list[Shard](), Counter[str]()
    for name, file in Bucket(given).list_files().items():
        if HIDDEN.search(name):
            left_out["hidden file"] += 1
        elif file.location.name.startswith(NO_DATA):
            left_out[NO_DATA_FILE] += 1
        else:
            shards.append(
                Shard((file.location.address,), shard_name(name), file.bytes, changed_ns=file.changed_ns)
            )
    warn_of_left_out(without_options(given), left_out)
    if not shards:
        raise BertJaxError(
            f"no file at {without_options(given)}; give a file, a folder or a glob of files in a bucket"
        )
    return shards


def check_names(shards: list[Shard]) -> list[Shard]:
    """Refuse shards whose outputs would have the same name, and files whose names no manifest can keep."""
    by_name: dict[str, Shard] = {}
    for shard in shards:
        refuse_unreadable_name(shard.display_name)
        if (other := by_name.setdefault(shard.name, shard)) is not shard:
            raise BertJaxError(
                f"the outputs of {other.display_name} and {shard.display_name} would have the same name; give them in "
                "two commands"
            )
    return shards


def refuse_unreadable_name(file: str) -> None:
    if holds_surrogates(file):
        raise BertJaxError(f"the name of {file} is not UTF-8, so no manifest can keep it; rename the file")


def shard_name(file: str) -> str:
    """Return the name of a file without the endings of its format and its compression.

    >>> [shard_name(name) for name in ("a/reviews.jsonl.gz", "part-0.snappy.parquet", "words.conll")]
    ['a/reviews', 'part-0.snappy', 'words.conll']
    """
    path = Path(file)
    for endings in (DECOMPRESS, TABLE_EXTENSIONS):
        if path.suffix.lower() in endings:
            path = path.with_suffix("")
    return path.as_posix()


def join_shards(shards: Sequence[Shard], size: int) -> list[Shard]:
    """Return shards of the files of consecutive shards, with `size` bytes or a little more; the last has the rest."""
    joined: list[Shard] = []
    sources: list[str] = []
    total = changed_ns = 0
    for number, shard in enumerate(shards, 1):
        sources += shard.sources
        total, changed_ns = total + shard.size, max(changed_ns, shard.changed_ns)
        if total >= size or number == len(shards):
            joined.append(Shard(tuple(sources), f"part-{len(joined):05d}", total, changed_ns=changed_ns))
            sources, total, changed_ns = [], 0, 0
    return joined
