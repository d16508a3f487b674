"""Mutated files of every kind: what is hashed is refused, what is not means what it says, or one clear line."""

import json
import os
import random
import shutil
from collections import Counter
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


@pytest.mark.parametrize("subject", subjects.ALL, ids=lambda subject: subject.name)
def test_mutated_files(subject, small, tmp_path):
    outcomes = tries(subject, small, tmp_path, FEW)
    assert not unsound(outcomes), unsound(outcomes)[:3]
    if subject.hashed:
        assert {outcome.kind for _, outcome in outcomes} == {LINE}


@pytest.mark.long
def test_twenty_thousand_mutated_files(small, tmp_path, capsys):
    """The table of outcomes; with HOSTILE_RESULTS=FOLDER, kinds of file that were finished there are left out."""
    kept = Path(os.environ.get("HOSTILE_RESULTS", tmp_path))
    kept.mkdir(parents=True, exist_ok=True)
    kinds, wrong = Counter[str](), []
    for subject in subjects.ALL:
        note = kept / f"{subject.name.replace('/', '_')}.json"
        if not note.is_file():
            count = round(MANY * subject.share / sum(other.share for other in subjects.ALL)) + 1
            outcomes = tries(subject, small, tmp_path, count)
            counts = Counter(outcome.kind for _, outcome in outcomes)
            bad = [[seed, outcome.kind, outcome.detail] for seed, outcome in unsound(outcomes)]
            note.write_text(json.dumps({"counts": counts, "bad": bad}, indent=1))
        content = json.loads(note.read_text())
        kinds.update(content["counts"])
        wrong += [[subject.name, *case] for case in content["bad"]]
        with capsys.disabled():
            print(f"\n{subject.name}: {content['counts']}", end="")
    with capsys.disabled():
        print(f"\n{sum(kinds.values()):,} mutated files\n{table(kinds.elements())}")
    assert not wrong, wrong[:20]
