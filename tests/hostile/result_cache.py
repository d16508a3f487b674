"""Outcomes kept in a file, so that hours of tests go on where they were stopped."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.hostile.outcomes import table
from tests.support.project import PACKAGE


class Kept:
    """Outcomes by the name of what was tried, of this very code."""

    def __init__(self, name: str):
        digest = hashlib.blake2b(digest_size=8)
        for path in sorted(PACKAGE.rglob("*.py")):
            digest.update(path.read_bytes())
        folder = Path(os.environ.get("HOSTILE_OUTCOMES") or Path(tempfile.gettempdir(), "bert-jax-hostile"))
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}-{digest.hexdigest()}.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.outcomes: dict[str, str] = dict(json.loads(line) for line in lines)

    def __contains__(self, tried: str) -> bool:
        return tried in self.outcomes

    def add(self, tried: str, outcome: str) -> None:
        self.outcomes[tried] = outcome
        with open(self.path, "a") as file:
            file.write(json.dumps([tried, outcome]) + "\n")


def kept_and_shown(name: str) -> Iterator[Kept]:
    """What a fixture yields: outcomes to add to, whose table is printed at the end."""
    kept = Kept(name)
    yield kept
    print(f"\n{name}, and what was there after each:\n{table(kept.outcomes.values())}")
