"""The manifest of a checkpoint: the files that it must hold, with their hashes, written once all of them are there.

orbax restores a flipped bit silently, and accepts a directory without its commit marker as a checkpoint. So a
checkpoint counts only if it has a manifest, and is good only if every file matches the manifest.
"""

from pathlib import Path
from typing import Any, TypedDict

from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import hash_files, read_json, write_json

MANIFEST_FILE = "manifest.json"


class CheckpointManifest(TypedDict):
    position: dict[str, Any]
    files: dict[str, list[int | str]]  # name -> [size, hash]


def write_checkpoint_manifest(directory: Path, position: dict) -> None:
    """Hash the directory's files and write the manifest; `position` says where the run was."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    content = {"position": position, "files": hash_files(directory, names)}
    write_json(directory / MANIFEST_FILE, hashes.sealed(content), indent=1)


def read_checkpoint_manifest(directory: Path) -> dict | None:
    """Return the content of the manifest; None if it is missing or damaged."""
    try:
        content = read_json(directory / MANIFEST_FILE, CheckpointManifest)
    except (FileNotFoundError, BertJaxError):
        return None
    return content if hashes.is_sealed(content) else None


def find_damage(directory: Path) -> str | None:
    """Say what is wrong with a checkpoint; return None if it is good."""
    if not (directory / MANIFEST_FILE).is_file():
        return "it was never committed"
    content = read_checkpoint_manifest(directory)
    if content is None:
        return f"its {MANIFEST_FILE} is damaged"
    files = {name: hashes.file_facts(*facts) for name, facts in content["files"].items()}
    return next(hashes.find_damaged_files(directory, files), None)
