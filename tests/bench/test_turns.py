"""Contenders take turns in processes of their own, and their times are compared with intervals."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_jax.bench.timing import Turn
from bert_jax.core.errors import BertJaxError
from tests.bench.turns import OURS, Limits, Ratio, interleaved, ratio, running_processes
from tests.support.cases import long_except
from tests.support.processes import process_environment, start_process
from tests.support.project import ROOT
from tests.support.small_models import write_model


def test_of_two_calls_the_second_counts():
    calls = iter(range(8))

    def contender():
        return None, Turn(next(calls), 0)

    contenders = {OURS: contender, "b": contender}
    taken = [turn.seconds for _, _, turn in interleaved(contenders, [(), ()], Limits(2, 0), twice=True)]
    assert taken == [1, 3, 5, 7]


def naming_its_process(name: str):
    return lambda word: (name, word, os.getpid())


def refusing(how: str):
    if how == "made":
        raise BertJaxError("no such model")

    def run(word):
        if how == "called":
            raise BertJaxError(f"cannot read {word}")
        os._exit(1)

    return run


@pytest.mark.slow
def test_contenders_take_turns_in_processes_of_their_own():
    makers = {name: (naming_its_process, name) for name in ("a", "b")}
    with running_processes(makers) as contenders:
        answers = list(interleaved(contenders, [("x",), ("y",)], Limits(2, 0)))
        processes = [contender.process for contender in contenders.values()]
    assert [(name, *result[:2]) for name, result, _ in answers] == [
        ("a", "a", "x"), ("b", "b", "x"), ("a", "a", "y"), ("b", "b", "y"),
    ]  # fmt: skip
    assert len({result[2] for _, result, _ in answers} | {os.getpid()}) == 3
    assert not any(process.is_alive() for process in processes)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("how", "message"),
    [("made", "no such model"), ("called", "cannot read x"), ("killed", "a contender's process ended")],
)
def test_an_error_of_a_contender_is_raised_where_it_is_called(how, message):
    with (
        pytest.raises(BertJaxError, match=message),
        running_processes({"a": (refusing, how)}) as contenders,
    ):
        contenders["a"]("x")


def test_the_ratio_is_that_of_neighbouring_turns_and_has_an_interval():
    assert ratio([2.0], [3.0]) == Ratio(1.5, None, None, 1)
    assert str(ratio([2.0], [3.0])) == "1.50 (one round, no interval)"
    assert ratio([1.0] * 6, [6.0, 1.0, 2.0, 5.0, 3.0, 4.0]) == Ratio(3.5, 1.0, 6.0, 6)
    draws = np.exp(np.random.default_rng(0).normal(size=(2000, 15)))
    intervals = [ratio(np.ones(15), row) for row in draws]
    assert 0.95 <= np.mean([r.low <= 1 <= r.high for r in intervals]) < 0.98  # the true median is 1
    of_three = [ratio(np.ones(3), row[:3]) for row in draws]
    assert np.mean([r.low <= 1 <= r.high for r in of_three]) == pytest.approx(0.95, abs=0.015)
    assert not ratio([1.0] * 3, [2.0] * 3).narrow  # too few rounds to stop


@pytest.mark.parametrize(("spread", "rounds"), [(0.0, 6), (0.5, 40)])
def test_rounds_go_on_until_every_interval_is_narrow(spread, rounds):
    random = np.random.default_rng(0)
    contenders = {
        f"{OURS} float32": lambda: (1.0, None),
        f"{OURS} bfloat16": lambda: (np.exp(spread * random.normal()), None),
        "theirs": lambda: (2.0, None),
    }
    taken = list(interleaved(contenders, [()] * 40, Limits(2, 60), lambda value, _: value))
    assert len(taken) == 3 * rounds
    assert len(list(interleaved(contenders, [()] * 40, Limits(2, 0), lambda value, _: value))) == 6


@pytest.mark.slow
def test_a_contender_ends_with_its_parent():
    script = """
import tests.bench.test_turns
from tests.bench.turns import Contender
Contender(tests.bench.test_turns.sleeping)("x")
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
        env=process_environment() | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )  # fmt: skip
    assert int(parent.stdout.readline()) != parent.pid
    parent.kill()
    # Until the contender, who sleeps for longer, has let go of the pipe as well.
    parent.communicate(timeout=20)


def sleeping():
    def run(word):
        print(os.getpid(), flush=True)
        time.sleep(60)

    return run


@pytest.mark.ci
@pytest.mark.parametrize("number", long_except([signal.SIGTERM, signal.SIGINT], [signal.SIGTERM]))
def test_a_comparison_ends_when_it_is_told_to(number, tmp_path):
    """Its run is of a temporary directory: nothing is left, and nothing is said of going on."""
    write_model(tmp_path / "model", heads=("mlm",))
    rows = [f"the cat sat on mat {n},{('no', 'yes')[n % 2]}" for n in range(200)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    (tmp_path / "scratch").mkdir()
    settings = {"init": tmp_path / "model", "data.train": tmp_path / "train.csv", "epochs": 5000,
                "data.max_length": 8}  # fmt: skip
    bench = start_process(
        [sys.executable, "-m", "tests.bench", "finetune", "--config", f"{ROOT}/configs/classify.py",
         *(f"--config.{key}={value}" for key, value in settings.items()), "--dtype", "float32"],
        TMPDIR=str(tmp_path / "scratch"),
    )  # fmt: skip
    line = ""
    while not line.startswith("step "):
        line = bench.stdout.readline()
        assert line, "it has ended"
    bench.send_signal(number)
    begun = time.monotonic()
    output = bench.communicate(timeout=60)[0]  # until all its processes have ended
    assert time.monotonic() - begun < 5
    assert bench.returncode == 128 + number
    assert "stopp" not in output and "goes on" not in output and "Traceback" not in output
    assert os.listdir(tmp_path / "scratch") == []
