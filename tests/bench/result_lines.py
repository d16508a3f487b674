"""A file of results, a line of JSON for each. If a run was killed, the same command goes on after the last line."""

import json
from pathlib import Path

from bert_jax.core.files import to_json, write_atomically


def read_result_lines(results: Path) -> list[dict]:
    """Read the results so far, without a last line that is incomplete."""
    if not results.exists():
        return []
    whole = results.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in whole]


def append_line(results: Path, line: dict) -> None:
    whole = [*read_result_lines(results), line]
    write_atomically(results, "".join(to_json(line) + "\n" for line in whole))
