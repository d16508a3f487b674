"""Safe writing of outputs: an output is complete or absent, is written by one process at a time, and never overwrites
files that are not ours.

While an output is being written, it stands beside its final name as `.NAME.xxxxxxxx.partial`, locked by the process
that writes it. If it is not locked, a killed process left it, and the next process that writes NAME removes it.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TextIO

from bert_jax.core.bucket import is_bucket, without_options
from bert_jax.core.errors import BertJaxError, explain_os_error

PARTIAL = ".partial"
BEFORE = ".before"  # suffix of the old directory while the new one takes its place
SHOWN = 3  # the most foreign files that a message names


@contextmanager
def atomic_file(path: Path, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary path, which replaces `path` when the block ends without an error.

    Links are followed, and the file mode is kept. If `path` is a device or a pipe, the content is copied to it at the
    end. It is an error if another process is writing the same file, unless the file is `shared`: a cache that every
    process may write.
    """
    with explain_os_errors(path):
        path = resolve_destination(path)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if is_written_in_place(path):
            with tempfile.TemporaryDirectory() as scratch:
                temporary = Path(scratch, "output")
                yield temporary
                with open(temporary, "rb") as whole, open(open_in_place(path), "wb") as file:
                    shutil.copyfileobj(whole, file)
            return
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        with temporary_sibling(path, shared=shared) as temporary:
            yield temporary
            sync_to_disk(temporary)
            keep_mode(temporary, path, 0o666)
            temporary.replace(path)


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Open a text file that is complete or absent; a device or a pipe gets each line as it is written."""
    with explain_os_errors(path):
        path = resolve_destination(path)
        in_place = is_written_in_place(path)
    if in_place:
        with explain_os_errors(path), open(open_in_place(path), "w", encoding="utf-8") as file:
            yield file
    else:
        with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            yield file


@contextmanager
def atomic_directory(directory: Path, replaces: Collection[str] = ()) -> Iterator[Path]:
    """Yield a new directory, which takes the place of `directory` when the block ends without an error.

    There must be nothing in that place, or an empty directory. Only a run that resumes `replaces` what it wrote itself:
    a directory each of whose files has one of these names.
    """
    with explain_os_errors(directory):
        directory = resolve_destination(directory).absolute()
        refuse_replacing(directory, replaces)
        with temporary_sibling(directory, is_directory=True) as new:
            restore_directory(directory)
            yield new
            for path in new.rglob("*"):
                sync_to_disk(path)
            keep_mode(new, directory, 0o777)
            refuse_replacing(directory, replaces)
            replace_directory(new, directory)


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a one-line error that names the output, or the other file that the OSError names.

    If `path` lies inside another output that is still being written, leave the error to the `explain_os_errors` of
    that output.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if is_partial(path):
            raise
        named = Path(error.filename or path)
        raise explain_os_error(error, path if is_partial(named) else named) from error


def is_partial(path: Path) -> bool:
    return any(part.endswith(PARTIAL) for part in Path(path).parts)


def resolve_destination(path: Path) -> Path:
    """Follow the symbolic links of an output, except those to an open file, such as /dev/stdout."""
    path = Path(path)
    with suppress(FileNotFoundError):
        path.stat()  # raises if the links form a loop
    while path.is_symlink() and not is_link_to_open_file(path):
        path = path.parent / path.readlink()
    return path


def is_link_to_open_file(path: Path) -> bool:
    return os.path.realpath(path.parent).startswith("/proc/")


def is_written_in_place(path: Path) -> bool:
    """Whether an output is a device, a pipe or an open file, which must not be replaced by a file."""
    return path.exists() and not path.is_dir() and (not path.is_file() or is_link_to_open_file(path))


def open_in_place(path: Path) -> int:
    """Open a device, a pipe or an open file for writing in place; return its file descriptor."""
    if os.path.realpath(path.parent) == f"/proc/{os.getpid()}/fd":
        return os.dup(int(path.name))
    return os.open(path, os.O_WRONLY | os.O_APPEND)


def refuse_input(output: str | None, source: str) -> None:
    """Raise if the output is the input file, or in a bucket. None is standard output, and "-" standard input."""
    if output is not None and is_bucket(output):
        raise BertJaxError(
            f"{without_options(output)}: only `predict --ray` and `embed --ray` write to a bucket; name a file here"
        )
    try:
        written = os.fstat(1) if output is None else os.stat(output)
        read = os.fstat(0) if source == "-" else os.stat(source)
    except OSError:  # one of them does not exist yet, or is not a file (tfds:NAME:SPLIT)
        return
    if stat.S_ISREG(written.st_mode) and os.path.samestat(written, read):
        raise BertJaxError(f"{output or 'standard output'} is also the input; write to another file")


@contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Create a directory that several runs of a command may fill, one at a time: it is locked while the block runs."""
    with explain_os_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY)
    try:
        if lock(handle) is False:
            raise output_busy_error(directory)
        yield
    finally:
        os.close(handle)


def lock(handle: int) -> bool | None:
    """Lock an open file or directory until it is closed. Return False if another process has locked it, and None if
    the file system has no locks, so that there is no way to know."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def output_busy_error(path: Path) -> BertJaxError:
    return BertJaxError(f"another process is writing {path}; wait until it ends, or name another output")


def refuse_output(output: str, source: str) -> None:
    """Raise if a directory is not empty, or lies in the one that it is to be made from."""
    with explain_os_errors(Path(output)):
        if Path(output).resolve().is_relative_to(Path(source).resolve()):
            raise BertJaxError(f"{output} is in {source}, which it is made from; name a directory elsewhere")
        refuse_replacing(Path(output))


def refuse_replacing(directory: Path, names: Collection[str] = ()) -> None:
    """Raise unless the directory is absent or, if it is not in use, empty or of files that have these names alone."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    if directory.is_mount() or Path.cwd().is_relative_to(directory.resolve()):
        raise BertJaxError(f"{directory} is in use and cannot be replaced; name a new directory in it")
    if not names and any(directory.iterdir()):
        raise BertJaxError(f"{directory} is not empty; name a new directory")
    ours = re.compile(
        "|".join([*map(re.escape, names), *(temporary_names(name, PARTIAL).pattern for name in names)])
    )
    foreign = (
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if (path.is_symlink() or not path.is_dir()) and not ours.fullmatch(path.name)
    )
    # No more than needed: the user may have named a huge directory by mistake.
    if shown := sorted(islice(foreign, SHOWN + 1)):
        listed = ", ".join(shown[:SHOWN]) + " and more" * (len(shown) > SHOWN)
        raise foreign_files_error(directory, listed)


def refuse_unlisted(directory: Path, listing: str) -> None:
    """Raise if the directory holds files but lacks the `listing` of what the command has written."""
    if not directory.is_dir() or (directory / listing).exists():
        return
    if foreign := sorted(name for name in os.listdir(directory) if not name.endswith(PARTIAL)):
        raise foreign_files_error(directory, foreign[0])


def foreign_files_error(directory: object, listed: str) -> BertJaxError:
    return BertJaxError(
        f"{directory} is left as it is because it holds files that this command does not write ({listed}); "
        "name a new directory"
    )


def temporary_names(name: str, suffix: str) -> re.Pattern[str]:
    """Return a pattern that matches the temporary names of a file or directory."""
    return re.compile(rf"\.{re.escape(name)}\.[a-z0-9_]{{8}}{re.escape(suffix)}")


@contextmanager
def temporary_sibling(path: Path, is_directory: bool = False, shared: bool = False) -> Iterator[Path]:
    """Create a file or directory beside `path`, locked until the block ends; remove it then if it still exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new, handle = create_locked(path, is_directory)
    try:
        remove_leftovers(path, new, shared)
        yield new
    finally:
        remove_path(new)
        os.close(handle)


def create_locked(path: Path, is_directory: bool) -> tuple[Path, int]:
    """Create a temporary file or directory for `path`; return its path and the handle that locks it until closed."""
    while True:
        prefix, folder = f".{path.name}.", path.parent
        if is_directory:
            name = tempfile.mkdtemp(PARTIAL, prefix, folder)
        else:
            created, name = tempfile.mkstemp(PARTIAL, prefix, folder)
            os.close(created)
        new = folder / Path(name).name  # relative where `path` is
        with suppress(FileNotFoundError):
            handle = os.open(new, os.O_RDONLY)
            # Before it was locked, another process may have taken it for a leftover, and removed it.
            if lock(handle) is not False and new.exists():
                return new, handle
            os.close(handle)


def remove_leftovers(path: Path, own: Path, shared: bool) -> None:
    """Remove what killed processes left of `path`. Raise if a process is writing it now, unless it is shared."""
    for other in temporaries(path, PARTIAL):
        if other == own:
            continue
        try:
            handle = os.open(other, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:  # it was finished just now, or belongs to another user
            continue
        try:
            is_ours = lock(handle)
            if is_ours is False and not shared:
                raise output_busy_error(path)
            if is_ours:
                with suppress(OSError):  # it belongs to another user
                    remove_path(other)
        finally:
            os.close(handle)


def temporaries(path: Path, suffix: str) -> list[Path]:
    pattern = temporary_names(path.name, suffix)
    return [path.parent / name for name in os.listdir(path.parent) if pattern.fullmatch(name)]


def remove_path(path: Path) -> None:
    """Remove a file, a directory with all that it holds, or a symbolic link, but never what a link points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_to_disk(path: Path) -> None:
    """Wait until a file or directory is on the disk, so that a power failure cannot leave an empty one in its place."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def keep_mode(new: Path, path: Path, default: int) -> None:
    """Give `new` the mode and the owner of the path that it replaces, or else the `default` mode under the umask."""
    if path.exists():
        before = path.stat()
        with suppress(PermissionError):  # only root can change the owner
            os.chown(new, before.st_uid, before.st_gid)
        new.chmod(stat.S_IMODE(before.st_mode))
    else:
        umask = os.umask(0)
        os.umask(umask)
        new.chmod(default & ~umask)


def replace_directory(new: Path, directory: Path) -> None:
    try:
        new.rename(directory)  # works if it does not exist or is empty
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    before = new.with_suffix(BEFORE)
    try:
        directory.rename(before)
        new.rename(directory)
    finally:
        restore_directory(directory)


def restore_directory(directory: Path) -> None:
    """Clean up after a replacement: rename the old directory back if nothing took its place, else remove it."""
    for before in temporaries(directory, BEFORE):
        if directory.exists():
            remove_path(before)
        else:
            before.rename(directory)
