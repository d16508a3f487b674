"""Parametrized tests of which the ordinary suite runs some cases only."""

import os
import random
from collections.abc import Collection, Iterable, Sequence

import pytest

SEED = "BERT_JAX_TESTS_SEED"  # a setting of the environment; without it, that of the day


def long_except(cases: Iterable, ordinary: Collection) -> list:
    """The cases as pytest's parameters; those that are not ordinary are marked long."""
    cases = list(cases)
    assert all(case in cases for case in ordinary), "an ordinary case is not among the cases"
    return [case if case in ordinary else mark_long(case) for case in cases]


def draw(cases: Sequence, count: int) -> list:
    """Some of the cases, others each day."""
    return random.Random(f"{os.environ[SEED]} {len(cases)}").sample(cases, count)


def draw_cases(cases: Iterable, count: int) -> list:
    """The cases as pytest's parameters; those that are not drawn are marked long."""
    cases = list(cases)
    drawn = {*draw(range(len(cases)), count)}
    return [case if n in drawn else mark_long(case) for n, case in enumerate(cases)]


def mark_long(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
