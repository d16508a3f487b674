"""Contenders take turns in processes of their own, and their times are compared with intervals."""

import os

import numpy as np
import pytest

from bert_jax.bench.timing import Turn
from bert_jax.core.errors import BertJaxError
from tests.bench.turns import OURS, Limits, Ratio, interleaved, ratio, running_processes


def test_of_two_calls_the_second_counts():
    calls = iter(range(8))

    def contender():
        return None, Turn(next(calls), 0)

    contenders = {OURS: contender, "b": contender}
    taken = [turn.seconds for _, _, turn in interleaved(contenders, [(), ()], Limits(2, 0), twice=True)]
    assert taken == [1, 3, 5, 7]


def naming_its_process(name: str):
    return lambda word: (name, word, os.getpid())


def ending():
    return lambda: os._exit(1)


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


@pytest.mark.slow
def test_a_contender_that_ended_gives_no_time():
    with (
        pytest.raises(BertJaxError, match="a contender's process ended"),
        running_processes({"a": (ending,)}) as contenders,
    ):
        contenders["a"]()


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
