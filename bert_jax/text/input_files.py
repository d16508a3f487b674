"""Inputs that users name: files, folders, globs, TensorFlow Datasets, data sets of the Hugging Face hub, compressed or
not; and tables in a program's memory, which are read by name, like files."""

import bz2
import errno
import glob
import gzip
import io
import lzma
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

from bert_jax.core.bucket import is_bucket, without_options
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError, explain_os_error, first_line
from bert_jax.core.terminal import pluralize

HUB_PREFIX = "hf://"
HUB_NAME = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)")
MEMORY_PREFIX = "memory:"
# Name -> (place, row) of each row; places are written as in Python, so the first is texts[0].
MEMORY_TABLES: dict[str, Sequence[tuple[str, dict]]] = {}
NOT_FILES = ("tfds:", MEMORY_PREFIX)  # prefixes of sources that are not opened as files
HIDDEN = re.compile(r"(^|/)\.")
# What is no file with a content that stands still.
OTHER_FILES = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
NOT_FOUND = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def expand_inputs(inputs: Sequence[str]) -> list[str]:
    """List the files and the tfds: and memory: names of the inputs, without duplicates, in the order of the inputs; the
    files of a folder or glob are sorted."""
    files: dict[str, None] = {}
    for given in map(str, inputs):
        pattern = fetch_from_hub(given) if given.startswith(HUB_PREFIX) else given
        names = [pattern] if pattern.startswith(NOT_FILES) else find_files(pattern)
        if not names and is_bucket(pattern):
            raise BertJaxError(
                f"{without_options(given)}: predict, embed and prepare read a bucket with --ray; copy the files here"
            )
        if not names and os.path.isdir(pattern):
            raise BertJaxError(f"the folder {given} holds no files that can be read; name another")
        if not names:
            raise BertJaxError(f"no file at {given}; give files, folders, globs or tfds:NAME/CONFIG:SPLIT")
        files |= dict.fromkeys(names)
    return list(files)


def find_files(pattern: str) -> list[str]:
    """Return the files of a file, a folder or a glob, sorted. Refuse what cannot be read, and tell how many others are
    left out."""
    left_out = Counter[str]()
    is_glob = glob.has_magic(pattern) and not os.path.lexists(pattern)
    mode = 0 if is_glob else file_mode(pattern)
    if is_glob:
        paths = list(match_files(pattern))
    elif stat.S_ISDIR(mode):
        paths = list(walk_folder(pattern, left_out))
    elif (file_type := stat.S_IFMT(mode)) in OTHER_FILES:
        raise BertJaxError(
            f"{pattern} is a {OTHER_FILES[file_type]}; write what it yields to a file, and name that"
        )
    else:
        return [pattern] if mode else []
    files = []
    for path in sorted(paths):
        file_type = stat.S_IFMT(file_mode(path))
        if file_type == stat.S_IFREG:
            files.append(path)
        elif file_type in OTHER_FILES:
            left_out[OTHER_FILES[file_type]] += 1
    warn_of_left_out(pattern, left_out)
    return files


def walk_folder(folder: str, left_out: Counter[str]) -> Iterator[str]:
    """Yield the paths of what is in a folder and in those below it; count what is not listed."""
    for where, folders, names in os.walk(Path(folder), onerror=refuse_folder):
        left_out["hidden file"] += sum(name.startswith(".") for name in (*folders, *names))
        folders[:] = [name for name in folders if not name.startswith(".")]
        left_out["linked folder"] += sum(os.path.islink(os.path.join(where, name)) for name in folders)
        yield from (os.path.join(where, name) for name in names if not name.startswith("."))


def match_files(pattern: str) -> Iterator[str]:
    """Yield the paths that match a glob; refuse a folder to look in that cannot be listed."""
    for part in (path := Path(pattern), *path.parents):
        for folder in glob.iglob(str(part.parent), recursive=True) if glob.has_magic(part.name) else ():
            try:
                os.scandir(folder).close()
            except NotADirectoryError:  # a file, in which a pattern matches nothing
                pass
            except OSError as error:
                refuse_folder(error)
    yield from glob.iglob(pattern, recursive=True)


def refuse_folder(error: OSError) -> NoReturn:
    raise explain_os_error(error) from error


def file_mode(path: str) -> int:
    """Return the mode of a file; 0 if there is none. Refuse a link that leads nowhere, and what cannot be looked at."""
    try:
        return os.stat(path).st_mode
    except ValueError:  # no path has a NUL
        return 0
    except OSError as error:
        if os.path.islink(path):
            raise BertJaxError(
                f"{path} is a link to {os.readlink(path)}, which cannot be read ({error.strerror}); restore what it "
                "links to, or remove the link"
            ) from error
        if error.errno in NOT_FOUND:
            return 0
        raise explain_os_error(error) from error


def warn_of_left_out(location: str, counts: Counter[str]) -> None:
    if parts := [pluralize(count, noun) for noun, count in counts.items() if count]:
        warn_caller(f"{location}: left out {' and '.join(parts)}")


def fetch_from_hub(given: str) -> str:
    """Fetch files, a folder or a glob of a data set, `hf://datasets/OWNER/NAME[@REVISION]/FILES`, and return the path
    of the local copy; the revision ~parquet is the hub's own copy in parquet."""
    match = HUB_NAME.fullmatch(given)
    if not match:
        raise BertJaxError(
            f"{given} is not hf://datasets/OWNER/NAME/FILES; name a file, a folder or a glob of the data set"
        )
    repository, revision, files = match[1], unquote(match[2] or "main"), match[3].rstrip("/")
    if revision.startswith("~"):
        revision = f"refs/convert/{revision[1:]}"
    try:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=[files, f"{files}/*"]
        )
    except Exception as error:  # offline, unknown, forbidden: a dozen types of three libraries
        raise BertJaxError(
            f"{given} cannot be fetched from the Hugging Face hub ({type(error).__name__}: {first_line(error)}); check "
            "its name and the network, or fetch the files and name them"
        ) from error
    return os.path.join(folder, files)


@contextmanager
def register_tables(tables: Mapping[str, Sequence[tuple[str, dict]]]) -> Iterator[None]:
    """Make each table readable as `memory:NAME` inside the with block."""
    before = dict(MEMORY_TABLES)
    MEMORY_TABLES.update(tables)
    try:
        yield
    finally:
        MEMORY_TABLES.clear()
        MEMORY_TABLES.update(before)


def read_memory_table(name: str) -> Iterator[tuple[str, dict]]:
    table = name.removeprefix(MEMORY_PREFIX)
    if table not in MEMORY_TABLES:
        raise BertJaxError(f"{name} was in the memory of a program that has ended; run that program again")
    return iter(MEMORY_TABLES[table])


def file_extension(name: str) -> str:
    """Return the ending of a file's name in lower case, below the ending of a compression.

    >>> file_extension("Reviews.JSONL.GZ")
    '.jsonl'
    """
    path = Path(name.lower())
    return (Path(path.stem) if path.suffix in DECOMPRESS else path).suffix


def decompress(name: str, raw: io.BufferedReader) -> io.BufferedIOBase:
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
