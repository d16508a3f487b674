"""The files that a checkpoint directory must hold, with their hashes, written when all of them are there.

orbax restores a flipped bit in silence, and takes a directory for a checkpoint that lacks its commit marker; so a
checkpoint counts when its manifest is there, and is good when every file is what the manifest says.
"""

import json
from pathlib import Path
from typing import Any, TypedDict

from bert_jax import hashes
from bert_jax.files import hash_files, write_atomically
from bert_jax.typed import Mistyped, fit

NAME = "manifest.json"


class Manifest(TypedDict):
    position: dict[str, Any]
    files: dict[str, list[int | str]]  # name -> [size, hash]


def write(directory: Path, position: dict) -> None:
    """Hash the files of the directory; `position` is where the run stood."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    content = {"position": position, "files": hash_files(directory, names)}
    write_atomically(directory / NAME, json.dumps(hashes.sealed(content), indent=1))


def read(directory: Path) -> dict | None:
    """What a manifest holds; None where there is no manifest or it is not what was written."""
    try:
        # Not `read_json`: runs begun earlier may have measured what is not finite.
        content = json.loads((directory / NAME).read_text(encoding="utf-8"))
        return fit(content, Manifest) if hashes.is_sealed(content) else None
    except (FileNotFoundError, ValueError, AttributeError, RecursionError, Mistyped):
        return None


def damage(directory: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    if not (directory / NAME).is_file():
        return "it was never committed"
    content = read(directory)
    if content is None:
        return f"its {NAME} is damaged"
    files = {name: hashes.facts(*facts) for name, facts in content["files"].items()}
    return next(hashes.differing(directory, files), None)
