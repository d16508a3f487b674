"""Cases of a test of which the ordinary suite runs those that show the most."""

from collections.abc import Collection, Iterable

import pytest


def shown(cases: Iterable, first: Collection) -> list:
    """The cases as pytest's parameters; those that are not among the first are long."""
    return [case if case in first else long(case) for case in cases]


def long(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
