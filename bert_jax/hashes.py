"""Hashes of a directory's files, and of what lists them, so that a change of either is seen."""

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

from bert_jax.errors import BertJaxError
from bert_jax.files import hash_files, read_json, write_json

FILE = "hashes.json"  # of a saved model; other programs take no notice of it
SELF = "self"  # the key of a list's own hash


class FileFacts(TypedDict):
    bytes: int
    blake2b: str


class Hashes(TypedDict):
    files: dict[str, FileFacts]


def digest(value) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """With the hash of all of it."""
    return {**content, SELF: digest(content)}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Whether it is what was sealed."""
    return content.get(SELF) == digest({name: value for name, value in content.items() if name != SELF})


def facts(size=-1, blake2b="", *_) -> FileFacts:
    return {"bytes": size, "blake2b": blake2b}


def facts_of(directory: Path, names: list[str]) -> dict[str, FileFacts]:
    return {name: facts(*hashed) for name, hashed in hash_files(directory, names).items()}


def is_within(name: str) -> bool:
    """Whether a name in a file of a stranger stays in its directory."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def differing(directory: Path, files: Mapping[str, FileFacts]) -> Iterator[str]:
    """What is wrong with each file that is not as it was: names and sizes first, for hashing may take long."""
    wrong = {
        name: wrong for name, facts in files.items() if (wrong := misfit(directory, name, facts["bytes"]))
    }
    yield from wrong.values()
    whole = [name for name in files if name not in wrong]
    for name, (_, actual) in hash_files(directory, whole).items():
        if actual != files[name]["blake2b"]:
            yield f"{name} is damaged: its hash differs"


def misfit(directory: Path, name: str, size: int) -> str | None:
    if not is_within(name):
        return f"it lists {name[:100]!r}, which is not a file in it"
    if not (directory / name).is_file():
        return f"it lacks its file {name}"
    actual = (directory / name).stat().st_size
    return f"{name} has {actual:,} bytes instead of {size:,}" if actual != size else None


def write(directory: Path) -> None:
    """List the files of a model directory, those of models within it aside, which have lists of their own."""
    write_list(directory, facts_of(directory, sorted(files_in(directory))))


def update(directory: Path, name: str) -> None:
    """List a file that was written or removed since, where there is a list."""
    files = read(directory)
    if files is not None:
        here = [name] * (directory / name).is_file()
        write_list(directory, {of: files[of] for of in files if of != name} | facts_of(directory, here))


def write_list(directory: Path, files: dict[str, FileFacts]) -> None:
    write_json(directory / FILE, sealed({"files": files}))


def files_in(directory: Path) -> Iterator[str]:
    for path in directory.iterdir():
        if path.is_dir() and not (path / FILE).is_file():
            yield from (f"{path.name}/{name}" for name in files_in(path))
        elif path.is_file() and path.name != FILE:
            yield path.name


def read(directory: Path) -> dict[str, FileFacts] | None:
    """What was listed; None where nothing was."""
    path, remedy = directory / FILE, "copy the directory again, or delete this file to do without"
    if not path.is_file():
        return None
    content = read_json(path, Hashes, remedy)
    if not is_sealed(content):
        raise BertJaxError(f"{path} is damaged: its hash differs; {remedy}")
    return content["files"]
