"""Files in buckets, which pyarrow lists, reads and writes by their addresses, such as gs://bucket/folder.

Options of the storage follow a "?": s3://bucket/folder?region=eu-central-1 (see `pyarrow.fs.FileSystem.from_uri`).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.core.errors import BertJaxError, first_line

SCHEME_END = "://"


def is_bucket(name: str) -> bool:
    return SCHEME_END in name


def without_options(name: str) -> str:
    """Return an address without what follows a "?", which may be a key; the name of a file stays.

    >>> without_options("s3://bucket/a?region=x"), without_options("a?b")
    ('s3://bucket/a', 'a?b')
    """
    return name.partition("?")[0] if is_bucket(name) else name


@dataclass(frozen=True)
class Bucket:
    """A folder or a file in a bucket."""

    address: str

    def __str__(self) -> str:
        return without_options(self.address)

    def __truediv__(self, name: str) -> "Bucket":
        location, mark, options = self.address.partition("?")
        return Bucket(f"{location.rstrip('/')}/{name}{mark}{options}")

    @property
    def name(self) -> str:
        return str(self).rpartition("/")[2]

    @contextmanager
    def opened(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system of pyarrow, and the path in it; errors are told in one line."""
        import pyarrow as pa

        try:
            _, _, options = self.address.partition("?")
            scheme, _, location = str(self).partition(SCHEME_END)
            bucket, _, path = location.partition("/")
            files, root = open_filesystem(scheme, bucket, options)
            yield files, f"{root.rstrip('/')}/{path}".rstrip("/")
        except (OSError, pa.ArrowException) as error:
            raise BertJaxError(
                f"{self}: {first_line(error)}; check the address, the permissions of the bucket, and the disk here"
            ) from error

    def list_files(self) -> "dict[str, BucketFile]":
        """Return the file, or the files of a folder by their names below it; of a glob those that match."""
        location, star, _ = str(self).partition("*")
        if star:
            folder = location.rpartition("/")[0]
            pattern = wildcard_pattern(str(self)[len(folder) + 1 :])
            files = Bucket(self.address.replace(str(self), folder, 1)).list_files()
            return {name: file for name, file in files.items() if pattern.fullmatch(name)}
        from pyarrow import fs

        with self.opened() as (files, root):
            info = files.get_file_info(root)
            if info.type == fs.FileType.File:
                return {self.name: BucketFile(self, info.size, info.mtime_ns)}
            infos = files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        return {
            (name := info.path[len(root) + 1 :]): BucketFile(self / name, info.size, info.mtime_ns)
            for info in sorted(infos, key=lambda info: info.path)
            if info.type == fs.FileType.File
        }

    def download(self, target: Path) -> None:
        """Copy a file to this machine; into a folder that exists, all that is in one."""
        from pyarrow import fs

        with self.opened() as (files, path):
            target.parent.mkdir(parents=True, exist_ok=True)
            fs.copy_files(path, str(target), source_filesystem=files)

    def upload(self, source: Path) -> None:
        """Copy a file of this machine to this address."""
        with self.opened() as (files, path):
            if files.type_name == "local":  # file:// has folders; a bucket has none
                files.create_dir(path.rpartition("/")[0])
            # Not copy_files of pyarrow, which does not tell that an upload failed.
            with open(source, "rb") as content, files.open_output_stream(path) as file:
                file.upload(content)

    def remove(self) -> None:
        with self.opened() as (files, path):
            files.delete_file(path)

    def remove_folder(self) -> None:
        with self.opened() as (files, path):
            files.delete_dir(path)


class BucketFile(NamedTuple):
    location: Bucket
    bytes: int
    changed_ns: int


@lru_cache
def open_filesystem(scheme: str, bucket: str, options: str) -> tuple[Any, str]:
    from pyarrow import fs

    if re.search(":.*@", bucket):
        raise BertJaxError("keys do not belong in an address, which is stored; set them in the environment")
    if scheme == "gs":
        options += "&" * bool(options) + "retry_limit_seconds=60"  # instead of 15 minutes
    return fs.FileSystem.from_uri(f"{scheme}://{bucket}{'' if bucket else '/'}{'?' * bool(options)}{options}")


def wildcard_pattern(name: str) -> re.Pattern[str]:
    """
    >>> [bool(wildcard_pattern("a*/*.csv").fullmatch(name)) for name in ("ab/c.csv", "a/b/c.csv", "b/c.csv")]
    [True, False, False]
    >>> [bool(wildcard_pattern("**/*.csv").fullmatch(name)) for name in ("c.csv", "a/b/c.csv")]
    [True, True]
    """
    pieces = {"**/": "(.*/)?", "*": "[^/]*"}
    return re.compile(
        "".join(pieces.get(piece) or re.escape(piece) for piece in re.split(r"(\*\*/|\*)", name))
    )
