"""How rows are divided into batches."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bert_jax.inference.batching import BatchShapes, split_rows
from bert_jax.inference.engines.jax import CPU_SHAPES
from bert_jax.serve.server import serving_shapes


def cost(batches: list[tuple[int, int]], lengths: list[int], shapes: BatchShapes) -> int:
    return sum(shapes.overhead + rows * lengths[first] for first, rows in batches)


def least_cost(lengths: list[int], shapes: BatchShapes) -> int:
    """Try every division into batches."""

    @cache
    def rest(first: int) -> int:
        if first >= len(lengths):
            return 0
        length = lengths[first]
        return min(shapes.overhead + n * length + rest(first + n) for n in shapes.row_counts(length))

    return rest(0)


@pytest.mark.parametrize("shapes", [BatchShapes(240, (), 24), serving_shapes(CPU_SHAPES)])
def test_batches_take_the_least_time(shapes):
    random = np.random.RandomState(0)
    for count in range(1, 40):
        drawn = sorted(random.geometric(0.05, count).clip(2, 200), reverse=True)
        lengths = [shapes.padded_length(int(length), 512) for length in drawn]
        batches = list(split_rows(lengths, shapes))
        ends = [first + rows for first, rows in batches]
        assert [first for first, _ in batches] == [0, *ends[:-1]] and ends[-1] >= count
        assert all(rows in shapes.row_counts(lengths[first]) for first, rows in batches)
        assert cost(batches, lengths, shapes) == least_cost(lengths, shapes)


def test_without_a_cost_of_a_batch_there_are_as_few_as_possible():
    assert list(split_rows([40] * 33, CPU_SHAPES)) == [(0, 25), (25, 8)]
    apart = replace(CPU_SHAPES, shared=0)
    assert list(split_rows([20] * 33, apart)) == [(0, 51)]
    served = serving_shapes(apart)
    assert list(split_rows([20] * 33, served)) == [(0, 16), (16, 16), (32, 1)]
    assert list(split_rows([20] * 31, served)) == [(0, 16), (16, 16)]
