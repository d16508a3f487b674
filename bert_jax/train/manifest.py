"""The files that a checkpoint directory must hold, with their hashes, written when all of them are there.

orbax restores a flipped bit in silence, and takes a directory for a checkpoint that lacks its commit marker; so a
checkpoint counts when its manifest is there, and is good when every file is what the manifest says.
"""

import json
from hashlib import blake2b
from pathlib import Path

from bert_jax.files import hash_files, write_atomically

NAME = "manifest.json"


def write(directory: Path, position: dict) -> None:
    """Hash the files of the directory; `position` is where the run stood."""
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    content = {"position": position, "files": hash_files(directory, names)}
    write_atomically(directory / NAME, json.dumps(content | {"self": digest(content)}, indent=1))


def read(directory: Path) -> dict | None:
    """The position that a manifest holds; None where there is no manifest or it is not what was written."""
    try:
        content = json.loads((directory / NAME).read_text(encoding="utf-8"))
        expected = content.pop("self")
        return content if expected == digest(content) else None
    except (FileNotFoundError, ValueError, KeyError, AttributeError):
        return None


def damage(directory: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    if not (directory / NAME).is_file():
        return "it was never committed"
    content = read(directory)
    if content is None:
        return f"its {NAME} is damaged"
    missing = [name for name in content["files"] if not (directory / name).is_file()]
    if missing:
        return f"it lacks {missing[0]}"
    for name, actual in hash_files(directory, content["files"]).items():
        if actual != content["files"][name]:
            return f"{name} is not what was written"
    return None


def digest(content: dict) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
