"""Bad and odd commands of every verb: each is right, or one clear line, and never leaves half a result."""

import contextlib
import json
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax.command.main import main
from tests.hostile import commands, edge_values
from tests.hostile.outcomes import LINE, RIGHT, SECONDS, Outcome
from tests.hostile.result_cache import kept_and_shown
from tests.support.cases import draw
from tests.support.pretraining_runs import train_command


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return edge_values.make(tmp_path_factory.mktemp("hostile") / "material")


@pytest.fixture(scope="module")
def kept():
    yield from kept_and_shown("commands")


TAKEN, THEIRS = ("taken.txt", "taken/theirs.txt"), "not ours"


class Hang(BaseException):
    """Not an Exception, which a command would report."""


def stop(number, frame):
    raise Hang


def run_command(arguments: list[str], stdin: str, folder: Path) -> Outcome:
    """Run a command in this process, for starting JAX takes seconds, with files as its standard streams."""
    code, begun, out, err = None, time.monotonic(), folder.with_name("stdout"), folder.with_name("stderr")
    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with (
            open(stdin, encoding="utf-8") as given, open(out, "w", encoding="utf-8") as printed,
            open(err, "w", encoding="utf-8", errors="backslashreplace", buffering=1) as told,
            contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told),
            pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore"),
        ):  # fmt: skip
            patch.setattr(sys, "stdin", given)
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
            except Exception:
                traceback.print_exc()
                code = 1
    except Hang:
        code = None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
    texts = [path.read_text("utf-8", "replace") for path in (out, err)]
    return Outcome(code, *texts, time.monotonic() - begun)


def tried(case: commands.Case, root: Path) -> tuple[str, Outcome]:
    """What came of a command, and what it left."""
    shutil.rmtree(root.parent / "new", ignore_errors=True)
    out = root.parent / "new" / "out"
    out.mkdir(parents=True)
    for path in TAKEN:
        (out / path).parent.mkdir(exist_ok=True)
        (out / path).write_text(THEIRS)
    for name in case.copies:
        shutil.copytree(root / name, out / name)
    arguments, stdin = commands.fill_in(case, root, out)
    outcome = run_command(arguments, stdin, out)
    kind = outcome.kind
    if kind == RIGHT:
        kind = wrong_in(out, outcome, arguments) or kind if case.may else "accepted"
    elif outcome.sound and any((out / path).read_text() != THEIRS for path in TAKEN):
        kind = "overwritten"
    elif outcome.sound and (
        left := [p.name for p in out.iterdir() if not (is_kept(p) or p.name in case.copies)]
    ):
        kind = f"left {left[0]}"
    elif outcome.sound and any(contents(out / name) != contents(root / name) for name in case.copies):
        kind = "changed"
    return kind, outcome


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, except for locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def is_kept(path: Path) -> bool:
    """What a failure may leave: a run or vectors, from which it goes on."""
    return path.name in ("run", "taken", "taken.txt") or path.name.endswith((".partial", ".cache"))


def wrong_in(out: Path, outcome: Outcome, arguments: list[str]) -> str:
    """What is wrong with the results of a command that came to a good end."""
    texts = [path for path in out.rglob("*") if path.suffix in (".json", ".jsonl")]
    lines = [
        line for path in texts if path.suffix == ".jsonl" for line in path.read_text("utf-8").splitlines()
    ]
    lines += [path.read_text("utf-8") for path in texts if path.suffix == ".json"]
    if arguments[0] == "predict" or "--json" in arguments:
        lines += [outcome.stdout] if arguments[0] == "evaluate" else outcome.stdout.splitlines()
    for line in lines:
        if line:
            json.loads(line, parse_constant=no_constant)
    arrays = [np.load(path) for path in out.rglob("*.npy") if path.parent.name != "train"]
    arrays += [array for path in out.rglob("model.safetensors") for array in load_file(path).values()]
    numbers = (array for array in arrays if array.dtype.kind == "f")
    return "" if all(np.isfinite(array).all() for array in numbers) else "not finite"


def no_constant(name: str):
    raise AssertionError(f"{name} is no number of JSON")


FEW = 100  # of the ordinary suite, and none of those that may compile a step or start processes
SLOW = ("bench", "preflight", "train", "prepare")


@pytest.mark.ci
def test_some_odd_commands(root):
    quick = [case for case in commands.cases() if " sweep of " in case.name or not case.name.startswith(SLOW)]
    outcomes = {case.name: tried(case, root) for case in draw(quick, FEW)}
    assert {name: o for name, (kind, o) in outcomes.items() if kind not in (RIGHT, LINE)} == {}


@pytest.mark.long
def test_all_odd_commands(root, kept):
    settings = {"steps": 4, "checkpoints.every": 2, "log.evaluate_every": 4}
    assert main(train_command(root / "corpus", root / "run", **settings)[3:]) == 0
    for case in commands.cases():
        if case.name not in kept:
            kind, outcome = tried(case, root)
            kept.add(case.name, kind)
            print(f"{case.name}: {outcome}") if kind not in (RIGHT, LINE) else None
    assert {name: kind for name, kind in kept.outcomes.items() if kind not in (RIGHT, LINE)} == {}
