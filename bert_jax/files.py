"""Files that are either whole or absent, JSON files that hold what they should, and the cache directory."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bert_jax.errors import BertJaxError, first_line


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same directory that takes `path`'s place when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | str) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value, indent: int = 2) -> None:
    write_atomically(path, json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def read_json(
    path: Path,
    kind: Any = dict,
    keys: Mapping[str, type] | None = None,
    remedy: str = "copy it again from its source",
) -> Any:
    """The object or list in a file; of an object, `keys` must be there with values of these types.

    A missing file raises FileNotFoundError, for the caller to explain.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BertJaxError(f"{path} is not valid JSON ({first_line(error)}); {remedy}") from error
    if not isinstance(value, kind):
        wanted = "an object" if kind is dict else "a list"
        raise BertJaxError(f"{path} holds a {type(value).__name__}, not {wanted}; {remedy}")
    for key, type_ in (keys or {}).items():
        if key not in value:
            raise BertJaxError(f'{path} has no key "{key}"; {remedy}')
        if not isinstance(value[key], type_):
            actual = type(value[key]).__name__
            raise BertJaxError(f'{path}: "{key}" is a {actual}, not a {type_.__name__}; {remedy}')
    return value


def file_hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def hash_files(directory: Path, names: Iterable[str]) -> dict[str, list]:
    """[size, hash] of each file, computed in threads."""
    names = list(names)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        facts = pool.map(lambda name: [(directory / name).stat().st_size, file_hash(directory / name)], names)
        return dict(zip(names, facts, strict=True))


def cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bert_jax"


def programs_home() -> Path:
    """Where programs that XLA compiled are kept, unless JAX is told otherwise."""
    return cache_home() / "programs"
