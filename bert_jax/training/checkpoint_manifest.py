"""The manifest of a checkpoint: the files that it must hold, with their hashes, written once all of them are there.

orbax restores a flipped bit silently, and accepts a directory without its commit marker as a checkpoint. So a
checkpoint counts only if it has a manifest, and is good only if every file matches the manifest.
"""

from pathlib import Path
from typing import Any, TypedDict

from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import hash_files, read_json, write_json

NAME = "manifest.json"


class Manifest(TypedDict):
    position: dict[str, Any]
    files: dict[str, list[int | str]]  # name -> [size, hash]


def write(directory: Path, position: dict) -> None:
    """Hash the directory's files and write the manifest; `position` says where the run was."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    content = {"position": position, "files": hash_files(directory, names)}
    write_json(directory / NAME, hashes.sealed(content), indent=1)


def read(directory: Path) -> dict | None:
    """Return the content of the manifest; None if it is missing or damaged."""
    try:
        content = read_json(directory / NAME, Manifest)
    except (FileNotFoundError, BertJaxError):
        return None
    return content if hashes.is_sealed(content) else None


def damage(directory: Path) -> str | None:
    """Say what is wrong with a checkpoint; return None if it is good."""
    if not (directory / NAME).is_file():
        return "it was never committed"
    content = read(directory)
    if content is None:
        return f"its {NAME} is damaged"
    files = {name: hashes.facts(*facts) for name, facts in content["files"].items()}
    return next(hashes.differing(directory, files), None)
