"""Mutated files of every kind: what is hashed is refused, what is not means what it says, or one clear line."""

import random
import shutil
from pathlib import Path

import pytest

from tests.hostile import subjects
from tests.hostile.fuzz_cases import Tried, tried
from tests.hostile.mutations import mutated
from tests.hostile.outcomes import LINE, RIGHT, table

FEW, MANY = 6, 20_000  # mutations of each kind of file in the ordinary suite, and of all kinds by hand


def tries(subject: subjects.Subject, source: Path, work: Path, count: int) -> list[tuple[int, Tried]]:
    """The outcome of each mutation of a subject's file."""
    folder = subject.prepared(source, work)
    original = (folder / subject.file).read_bytes()
    subject.read(folder)  # sound before it is mutated
    outcomes = []
    for seed in range(count):
        content = mutated(original, random.Random(f"{subject.name} {seed}"))
        (folder / subject.file).write_bytes(content)
        outcome = tried(
            lambda: subject.read(folder), lambda value, c=content: subject.means(original, c, value)
        )
        outcomes.append((seed, outcome))
    shutil.rmtree(folder)
    return outcomes


def unsound(outcomes: list[tuple[int, Tried]]) -> list[tuple[int, Tried]]:
    return [pair for pair in outcomes if pair[1].kind not in (RIGHT, LINE)]


@pytest.mark.parametrize("share", [FEW, pytest.param(MANY / len(subjects.ALL), marks=pytest.mark.long)])
@pytest.mark.parametrize("subject", subjects.ALL, ids=lambda subject: subject.name)
def test_mutated_files(subject, share, small, tmp_path):
    outcomes = tries(subject, small, tmp_path, share if share == FEW else round(share * subject.share) + 1)
    print(table(outcome.kind for _, outcome in outcomes))
    assert not unsound(outcomes), unsound(outcomes)[:3]
    if subject.hashed:
        assert {outcome.kind for _, outcome in outcomes} == {LINE}
