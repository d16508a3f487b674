"""Draws of dropout: as many as asked for, and independent of place, row and key."""

import jax
import numpy as np
import pytest

from bert_jax.models.dropout import draw_bernoulli


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_a_draw_is_true_with_its_probability_whatever_its_neighbours_are(impl):
    """Within five standard errors, of all draws and of pairs of them: neighbours, halves, other rows, other keys."""
    keys = jax.random.split(jax.random.key(3, impl=impl), 2)
    first, second = (
        np.asarray(jax.jit(draw_bernoulli, static_argnums=(1, 2))(key, 0.9, (2000, 192))) for key in keys
    )
    assert abs(first.mean() - 0.9) < 5 * (0.09 / first.size) ** 0.5
    for a, b in (
        (first[:, 1:], first[:, :-1]), (first[1:], first[:-1]), (first[:, :96], first[:, 96:]), (first, second),
        (first[:1000], first[1000:]), (first[:, ::64][:, 1:], first[:, ::64][:, :-1]),
    ):  # fmt: skip
        assert abs((a & b).mean() - 0.81) < 5 * (0.81 * 0.19 / a.size) ** 0.5
    last = np.asarray(draw_bernoulli(keys[0], 0.9, (4000, 7)))
    assert last.shape == (4000, 7) and abs(last.mean() - 0.9) < 5 * (0.09 / last.size) ** 0.5


def test_keys_that_differ_in_one_bit_draw_alike_by_chance_alone():
    shares = [
        float(
            (
                draw_bernoulli(jax.random.key(seed), 0.5, (200, 64))
                == draw_bernoulli(jax.random.key(seed ^ 1), 0.5, (200, 64))
            ).mean()
        )
        for seed in range(0, 64, 2)
    ]
    assert abs(np.mean(shares) - 0.5) < 5 * 0.5 / (12_800 * len(shares)) ** 0.5
    assert np.std(shares) < 1.6 * 0.5 / 12_800**0.5, "no two keys are alike"


def test_no_two_of_many_keys_draw_the_same():
    keys = jax.random.split(jax.random.key(0), 4096)
    draws = np.asarray(jax.vmap(lambda key: draw_bernoulli(key, 0.5, (64,)))(keys))
    assert len(np.unique(draws, axis=0)) == len(keys)
