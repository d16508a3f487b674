"""Small files that are written atomically, JSON files that are checked when read, hashes, and the cache directory."""

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.output import atomic_file
from bert_jax.core.typed_json import coerce_json


def write_atomically(path: Path, content: bytes | str, shared: bool = False) -> None:
    if isinstance(content, str):
        try:
            content = content.encode()
        except UnicodeEncodeError as error:
            before, after = error.object[: error.start], error.object[error.start :]
            name = before.rpartition('"')[2] + after.partition('"')[0]
            raise BertJaxError(
                f'{path} cannot keep the name "{name}", which is not UTF-8; rename it'
            ) from error
    with atomic_file(path, shared) as temporary:
        temporary.write_bytes(content)


def to_json(value, **options) -> str:
    """Encode as standard JSON, which cannot hold numbers that are not finite."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, **options)
    except ValueError as error:
        raise BertJaxError(
            "a result is not a finite number, so it is not written; check the weights, the calibration and the "
            "learning rate"
        ) from error


def write_json(path: Path, value, indent: int = 2) -> None:
    write_atomically(path, to_json(value, indent=indent) + "\n")


def read_json(path: Path, record_type: Any = dict, remedy: str = "copy it again from its source") -> Any:
    """Read a JSON file as `record_type` (see typed_json.py). Errors end with the `remedy`.

    A missing file raises FileNotFoundError, for the caller to explain.
    """
    return parse_json(path.read_bytes(), record_type, path, remedy)


def parse_json(content: bytes, record_type: Any, where, remedy: str) -> Any:
    try:
        value = json.loads(content.decode("utf-8"), parse_constant=refuse_constant)
        # JSON can spell a lone surrogate, but it cannot be encoded as UTF-8, so refuse it here.
        if b"\\u" in content:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise BertJaxError(f"{where} is not valid JSON ({first_line(error)}); {remedy}") from error
    try:
        return coerce_json(value, record_type)
    except BertJaxError as error:
        raise BertJaxError(f"{where}: {error}; {remedy}") from None


def refuse_constant(name: str):
    raise ValueError(f"{name} is not a JSON number")


def file_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def hash_files(directory: Path, names: Iterable[str]) -> dict[str, list]:
    """Return [size, hash] of each file, computed in threads."""
    names = list(names)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        facts = pool.map(lambda name: [(directory / name).stat().st_size, file_hash(directory / name)], names)
        return dict(zip(names, facts, strict=True))


def cache_home() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bert_jax"
    except RuntimeError as error:  # the user has no home directory
        raise BertJaxError(
            "no home directory to keep a cache in; set XDG_CACHE_HOME to a directory"
        ) from error


def compilation_cache_home() -> Path:
    """The cache directory of programs that XLA compiled, unless the user chose another for JAX."""
    return cache_home() / "programs"
