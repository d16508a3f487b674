"""Sizes that take turns with rows of several lengths."""

import pytest

from tests.bench.lengths import compare_lengths
from tests.bench.turns import Limits


@pytest.mark.slow
def test_sizes_are_compared_with_the_first_at_each_length():
    rows = compare_lengths(["tiny", "mini"], [512, 4096], Limits(1, 0)).splitlines()[2:6]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [cell[:2] for cell in cells] == [
        [size, what] for what in ("4 x 512", "1 x 4,096") for size in ("tiny", "mini")
    ]
    assert [bool(cell[4]) for cell in cells] == [False, True] * 2
    assert float(cells[2][3]) > float(cells[0][3]), "longer rows take more memory"
