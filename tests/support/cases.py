"""Parametrized tests of which the ordinary suite runs some cases only."""

from collections.abc import Collection, Iterable

import pytest


def long_except(cases: Iterable, ordinary: Collection) -> list:
    """The cases as pytest's parameters; those that are not ordinary are marked long."""
    cases = list(cases)
    assert all(case in cases for case in ordinary), "an ordinary case is not among the cases"
    return [case if case in ordinary else mark_long(case) for case in cases]


def mark_long(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
