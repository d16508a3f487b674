"""Hashes of a directory's files, and of the list of them, so that a change of either is detected."""

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import hash_files, read_json, write_json

FILE = "hashes.json"  # in a saved model's directory; other programs ignore it
SELF = "self"  # the key of the list's own hash


class FileFacts(TypedDict):
    bytes: int
    blake2b: str


class Hashes(TypedDict):
    files: dict[str, FileFacts]


def json_digest(value) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with its own hash added under the key SELF."""
    return {**content, SELF: json_digest(content)}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Whether the content still has the hash that `seal` added."""
    return content.get(SELF) == json_digest({name: value for name, value in content.items() if name != SELF})


def check_version(content: Mapping[str, Any], version: int, where: object, anew: str) -> None:
    """Refuse a file of another version of its format; `anew` says how to make it again."""
    if (other := content.get("version")) != version:
        raise BertJaxError(f"{where} has version {other!r:.20}, but {version} is needed; {anew}")


def file_facts(size=-1, blake2b="", *_) -> FileFacts:
    return {"bytes": size, "blake2b": blake2b}


def collect_file_facts(directory: Path, names: list[str]) -> dict[str, FileFacts]:
    return {name: file_facts(*hashed) for name, hashed in hash_files(directory, names).items()}


def is_inside_directory(name: str) -> bool:
    """Whether a file name from an untrusted list stays inside its directory."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def find_damaged_files(directory: Path, files: Mapping[str, FileFacts]) -> Iterator[str]:
    """Yield what is wrong with each file that changed. Names and sizes are checked first: hashing may take long."""
    wrong = {
        name: wrong
        for name, facts in files.items()
        if (wrong := describe_mismatch(directory, name, facts["bytes"]))
    }
    yield from wrong.values()
    whole = [name for name in files if name not in wrong]
    for name, (_, actual) in hash_files(directory, whole).items():
        if actual != files[name]["blake2b"]:
            yield f"{name} is damaged: its hash differs"


def is_whole(directory: Path) -> bool:
    """Whether a model directory has a list of its files, and they are as they were written."""
    files = read_hashes(directory)
    return files is not None and not any(find_damaged_files(directory, files))


def describe_mismatch(directory: Path, name: str, size: int) -> str | None:
    """Say what is wrong with the name, presence or size of a listed file; None if nothing is."""
    if not is_inside_directory(name):
        return f"it lists {name[:100]!r}, which is not a file in it"
    if not (directory / name).is_file():
        return f"it lacks its file {name}"
    actual = (directory / name).stat().st_size
    return f"{name} has {actual:,} bytes instead of {size:,}" if actual != size else None


def write_hashes(directory: Path) -> None:
    """Write the list of the files of a model directory, without those of nested models, which have their own lists."""
    files = collect_file_facts(directory, sorted(list_file_names(directory)))
    write_json(directory / FILE, seal({"files": files}))


def list_file_names(directory: Path) -> Iterator[str]:
    for path in directory.iterdir():
        if path.is_dir() and not (path / FILE).is_file():
            yield from (f"{path.name}/{name}" for name in list_file_names(path))
        elif path.is_file() and path.name != FILE:
            yield path.name


def read_hashes(directory: Path) -> dict[str, FileFacts] | None:
    """Read the list of a directory's files; None if it has none."""
    path, remedy = directory / FILE, "copy the directory again, or delete this file to skip the check"
    if not path.is_file():
        return None
    content = read_json(path, Hashes, remedy)
    if not is_sealed(content):
        raise BertJaxError(f"{path} is damaged: its hash differs; {remedy}")
    return content["files"]
