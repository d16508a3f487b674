"""Signals at many moments of each verb that writes: its result is whole or absent, and the same command makes it.

Hours at most; what was tried is kept and not tried again: `pytest -m long -s tests/hostile/test_signals.py`. And every
signal to every verb that may run for long.
"""

import json
import os
import pty
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hostile import verbs
from tests.hostile.material import model as write_model
from tests.hostile.outcomes import started
from tests.hostile.result_cache import kept_and_shown
from tests.hostile.verbs import CASES

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
MOMENTS = 30
BAD = ("half", "traceback", "leftover", "other bytes", "hang", "cannot be repeated")


@pytest.fixture(scope="module")
def result_cache():
    yield from kept_and_shown("signals")


def processor_seconds(number: int) -> float | None:
    """What a process has computed, however loaded the machine is; None when it has ended."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None
    ended = fields[0] == "Z"
    return None if ended else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def temporaries(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if "partial" in path.name]


@pytest.mark.long
@pytest.mark.parametrize("verb", CASES)
def test_a_result_is_whole_or_absent_whenever_a_signal_comes(verb, small, fork_pool, result_cache, tmp_path):
    case, material = CASES[verb], verbs.material(small)
    folder = tmp_path / "folder"  # the same for all: some results name it
    # The first run compiles what the others find.
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        case.begin(material, folder)
        number, begun, ended = (
            fork_pool.start(case.arguments(material, folder), tmp_path / "said"),
            None,
            None,
        )
        while (spent := processor_seconds(number)) is not None:
            last = spent
            begun = spent if begun is None and temporaries(folder) else begun
            ended = spent if ended is None and case.contents(folder) else ended
            time.sleep(0.001)
        assert fork_pool.wait(number) == 0, (tmp_path / "said").read_text()
    # Half of the signals come anywhere, half while the result is being written.
    spans = (0.0, last), (begun or 0.0, ended or last)
    whole = case.contents(folder), case.listing(folder)
    assert whole[0]
    for moment in range(MOMENTS):
        sent, name = SIGNALS[moment % len(SIGNALS)], f"{verb} {moment}"
        if name in result_cache:
            continue
        drawn = random.Random(name)
        target = drawn.uniform(*spans[moment // len(SIGNALS) % 2])
        shutil.rmtree(folder)
        folder.mkdir()
        case.begin(material, folder)
        number = fork_pool.start(case.arguments(material, folder), tmp_path / "said")
        while (spent := processor_seconds(number)) is not None and spent < target:
            time.sleep(0.0005)
        time.sleep(drawn.random() / 100)  # the system counts hundredths
        # Of a terminal all processes get Ctrl-C and its end, of `kill` the one that is named.
        (os.killpg if sent in (signal.SIGINT, signal.SIGHUP) else os.kill)(number, sent)
        code = fork_pool.wait(number)
        outcome = judged(case, code, (tmp_path / "said").read_text(), folder, whole[0])
        if outcome not in BAD:
            outcome = repeated(fork_pool, case, material, folder, whole, outcome, tmp_path / "said")
        if outcome in BAD:
            shutil.copy(tmp_path / "said", tmp_path / f"said {moment}")
            shutil.copytree(folder, tmp_path / str(moment))
        result_cache.add(name, outcome if outcome not in BAD else f"{outcome} ({verb}, {sent.name})")
    wrong = {tried: outcome for tried, outcome in result_cache.outcomes.items() if outcome.startswith(BAD)}
    assert not {tried: outcome for tried, outcome in wrong.items() if tried.startswith(f"{verb} ")}


def judged(case, code: int | None, printed: str, folder: Path, whole: dict) -> str:
    contents = case.contents(folder)
    if code is None:
        return "hang"
    if "Traceback" in printed:
        return "traceback"
    if contents not in (None, whole):
        return "half"
    return "absent" if contents is None else "whole"


def repeated(fork_pool, case, material, folder, whole, outcome: str, printed: Path) -> str:
    """The same command again: the same bytes, and nothing else there."""
    code = fork_pool.wait(fork_pool.start(case.arguments(material, folder), printed))
    refused = outcome == "whole" and not case.again
    if code != (1 if refused else 0):
        return "cannot be repeated"
    if case.contents(folder) != whole[0]:
        return "other bytes"
    # What was whole when the signal came is not touched again, nor is what stands beside it.
    return outcome if case.listing(folder) == whole[1] or refused else "leftover"


@pytest.mark.long
@pytest.mark.parametrize("ignored", [False, True])
def test_a_run_whose_terminal_ends_saves_its_step(small, tmp_path, ignored):
    """And goes on, if it was started with `nohup`."""
    workdir, (control, terminal) = tmp_path / "run", pty.openpty()
    flags = verbs.training(small, tmp_path)
    flags = ["--config.steps=100000" if flag.startswith("--config.steps=") else flag for flag in flags]

    def prepare():
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with open(tmp_path / "nohup.out", "w") as file:
        output = file if ignored else terminal
        process = started(
            [*flags, "--config.checkpoints.every=100000"],
            stdin=terminal, stdout=output, stderr=output, start_new_session=True, preexec_fn=prepare,
        )  # fmt: skip
    os.close(terminal)
    metrics = workdir / "metrics.jsonl"
    while not metrics.exists() or not metrics.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    os.close(control)
    os.killpg(process.pid, signal.SIGHUP)
    if ignored:
        before = metrics.read_text()
        deadline = time.monotonic() + 60
        while metrics.read_text() == before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert metrics.read_text() != before and process.poll() is None
        process.send_signal(signal.SIGTERM)
    process.wait(60)
    steps = [path for path in (workdir / "checkpoints").iterdir() if path.name.isdecimal()]
    assert steps and (steps[0] / "manifest.json").exists()


@pytest.fixture(scope="module")
def large(small):
    """What the verbs read, with so many texts that none of them ends by itself."""
    verbs.material(small)
    write_model(small / "ranker", small / "vocabulary", ("classify",), ("LABEL_0",))
    lines = (small / "many.txt").read_text()
    (small / "large.txt").write_text("".join(f"{n} {lines}" for n in range(200)))
    (small / "large.jsonl").write_text((small / "labelled.jsonl").read_text() * 20_000)
    queries = lines.splitlines()
    candidates = ({"query": queries[n], "documents": queries[n + 1 : n + 500]} for n in range(1000))
    (small / "candidates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in candidates))
    return small


def long_running(large: Path, folder: Path) -> dict[str, list]:
    on_many, out = ["--input", large / "large.txt"], folder / "out"
    masked, classifier = ["--model", large / "masked"], ["--model", large / "classifier"]
    return {
        "serve": ["serve", large / "masked", "--no-warm-up", "--port", 0],
        "serve --workers": ["serve", large / "masked", "--no-warm-up", "--port", 0, "--workers", 2],
        "train": [
            flag.replace("--config.steps=12", "--config.steps=1000000")
            for flag in verbs.training(large, folder)
        ],
        "prepare": ["prepare", "--input", large / "large.jsonl", "--tokenizer", large / "vocabulary", "--output", out,
                    "--processes", 2],
        "vocab": ["vocab", *on_many, "--size", 2000, "--output", out],
        "embed": ["embed", *masked, *on_many, "--output", folder / "out.npy"],
        "predict": ["predict", *classifier, *on_many, "--output", folder / "out.jsonl"],
        "index": ["index", large / "large.txt", *masked, "--output", out],
        "pairs": ["pairs", large / "large.txt", "--output", folder / "out.jsonl"],
        "mine": ["mine", *masked, "--data", large / "pairs.jsonl", "--margin", 0, "--output", folder / "out.jsonl"],
        "rerank": ["rerank", "--model", large / "ranker", "--input", large / "candidates.jsonl", "--output",
                   folder / "out.jsonl"],
        "score": ["score", *masked],
        "evaluate": ["evaluate", *classifier, "--data", large / "large.jsonl"],
        "bench": ["bench", "embed", *masked, *on_many, "--texts", 1_000_000],
        "export": ["export", large / "masked", "--format", "onnx", "--output", out],
    }  # fmt: skip


def members(group: int) -> list[str]:
    """The processes of a group that have not ended."""
    states = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
            states[path.parent.name] = state, int(of_group)
    return [number for number, (state, of_group) in states.items() if of_group == group and state != "Z"]


@pytest.mark.long
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("verb", long_running(Path(), Path()))
def test_every_signal_ends_every_verb_that_runs_for_long(verb, number, large, tmp_path):
    """At once, with its exit code, without a traceback and with all of its processes."""
    draw = random.Random(f"{verb} {number}")
    for target in (draw.uniform(0.8, 2), draw.uniform(2, 4)):  # while it imports, and while it computes
        with open(tmp_path / "said", "w") as output, open(large / "large.txt") as lines:
            arguments = long_running(large, tmp_path)[verb]
            process = started(arguments, stdin=lines, stdout=output, stderr=output, start_new_session=True)
        try:
            while (spent := processor_seconds(process.pid)) is not None and spent < target:
                if "serving" in (tmp_path / "said").read_text():
                    break  # it waits for requests, and computes nothing
                time.sleep(0.02)
            # Of a terminal all processes get Ctrl-C and its end, of `kill` the one that is named.
            (os.killpg if number in (signal.SIGINT, signal.SIGHUP) else os.kill)(process.pid, number)
            code, printed = process.wait(60), (tmp_path / "said").read_text()
            is_answering = verb.startswith("serve") and "serving" in printed
            expected = -number if number == signal.SIGKILL else 0 if is_answering else 128 + number
            assert code == expected and "Traceback" not in printed, (target, spent, code, printed[-2000:])
            end = time.monotonic() + 20
            while members(process.pid):
                assert time.monotonic() < end, members(process.pid)
                time.sleep(0.05)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
