"""SIGKILL in each stage of `adapt`, one after the other: the same command goes on from there, to the same bytes.

Minutes: `pytest -m long tests/hostile/test_adapt_kills.py`.
"""

import random
import shutil

import pytest

from tests.command.test_adapt import documents, results
from tests.hostile.outcomes import kill_when, started

pytestmark = pytest.mark.long
BEGUN = (  # what stands in the output when a stage has begun, and still when it is over; in their order
    "adapt.json", "pairs.jsonl", "mined.jsonl*", "embedder/metrics.jsonl", "embedder/checkpoints/[0-9]*",
    "embedder/model", "candidates.jsonl*", "reranker/metrics.jsonl", "reranker/checkpoints/[0-9]*",
    "reranker/model", "index/*", "index/segments/*", "*report*", "result.json",
)  # fmt: skip
OF_ALL = (
    "text.txt", "*corpus*", "language/metrics.jsonl", "language/model", *BEGUN[2:-4], "scored.jsonl*",
    "distilled/metrics.jsonl", "distilled/model", *BEGUN[-4:],
)  # fmt: skip
SECONDS = 0.5  # after that, at most


@pytest.mark.parametrize(
    ("begun", "more"), [(BEGUN, []), (OF_ALL, ["--masked-lm", "4", "--distil"])], ids=["usual", "all"]
)
def test_a_kill_in_any_stage_changes_nothing(begun, more, encoder_path, tmp_path):
    """Both are written to the same place, for results name it."""
    given = [
        "adapt", documents(tmp_path / "docs.jsonl", 60), "--model", str(encoder_path), "--output",
        str(tmp_path / "out"), "--pairs", "128", "--passage-tokens", "32", "--rate", "1e-3", "--epochs", "2", *more,
    ]  # fmt: skip
    out, drawn = tmp_path / "out", random.Random(1)
    finish(given)
    whole, names = results(out), sorted(path.name for path in out.iterdir())
    assert any(name.startswith("index/segments/") for name in whole) and "result.json" in whole
    shutil.rmtree(out)
    for pattern in begun:
        kill_when(started(given), out, pattern, drawn.uniform(0, SECONDS))
    finish(given)
    assert results(out) == whole
    assert sorted(path.name for path in out.iterdir()) == names and not [*out.rglob("*.partial")]


def finish(given: list[str]) -> None:
    process = started(given)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
