"""Mutated files of every kind: what is hashed is refused, what is not means what it says, or one clear line."""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bert_jax.core.errors import BertJaxError
from hostile import subjects
from hostile.mutations import mutated
from hostile.outcomes import LINE, LONGEST, RIGHT, SECONDS, table

MEMORY = 3 << 30  # bytes that a file may make this process take beside what it has
FEW, MANY = 6, 20_000  # mutations of each kind of file in the ordinary suite, and of all kinds by hand


@dataclass(frozen=True)
class Tried:
    kind: str
    detail: str = ""


@contextlib.contextmanager
def limited():
    """Time on the processor and memory of what a file may make of it."""

    def late(number, frame):
        raise TimeoutError

    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGPROF, late)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, before[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def tried(read: Callable[[], object], is_right: Callable[[object], bool]) -> Tried:
    """What came of reading a mutated file."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = read()
    except BertJaxError as error:
        text = str(error)
        if "\n" in text or len(text) > LONGEST:
            return Tried("long line", text[:500])
        return Tried(LINE, text)
    except TimeoutError:
        return Tried("hang")
    # The Rust libraries panic with what is no Exception.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Tried("traceback", repr(error)[:300])
    try:
        return Tried(RIGHT if is_right(value) else "wrong accepted")
    except Exception as error:  # it says nothing that could be accepted
        return Tried("wrong accepted", repr(error)[:300])


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
        note = kept / f"{subject.name}.json"
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
