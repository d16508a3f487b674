"""Draws of dropout: as many as asked for, and independent of place, row, head and key, in every kernel."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.dropout import draw_bernoulli
from bert_jax.models.kernels.flash_tiles import pair_keep_mask
from bert_jax.models.kernels.short_attention import hash_keep_mask

HEADS, L = 16, 512
PLACES = jnp.arange(L)


def correlation(a, b) -> float:
    """How many standard deviations the correlation of two draws is from that of independent ones."""
    a, b = (np.asarray(x, np.float64) - np.mean(x) for x in (a, b))
    return float((a * b).mean() / (a.std() * b.std()) * math.sqrt(a.size))


def worst_deviation(kept, rate: float) -> float:
    """Return how many standard deviations the worst of some statistics of draws [heads, L, L] is from a fair one."""
    kept = np.asarray(kept)
    deviations = [(kept.mean() - (1 - rate)) / math.sqrt(rate * (1 - rate) / kept.size)]
    deviations += [correlation(kept[:-1], kept[1:])]  # heads
    for axis in (1, 2):  # rows, then columns
        for step in (1, 2, 64, 128):
            first, second = (np.take(kept, range(*ends), axis) for ends in ((0, L - step), (step, L)))
            deviations.append(correlation(first, second))
    deviations.append(correlation(kept, kept.swapaxes(1, 2)))
    # All pairs of keys, over the queries of all heads; the worst of 131,000 fair ones is some 5 away.
    numbers = (kept.reshape(-1, L) - (1 - rate)) / math.sqrt(rate * (1 - rate))
    pairs = np.triu(numbers.T @ numbers, 1) / math.sqrt(len(numbers))
    deviations.append(np.abs(pairs).max() - 1.5)
    # The share that each query and each key loses varies as that of independent draws does.
    for axis in (1, 2):
        variance = kept.mean(axis).var() / (rate * (1 - rate) / L)
        deviations.append((variance - 1) / math.sqrt(2 / kept.mean(axis).size))
    return max(map(abs, deviations))


def draw_bits(impl: str, rate: float):
    return draw_bernoulli(jax.random.key(3, impl=impl), 1 - rate, (HEADS * L, L)).reshape(HEADS, L, L)


def draw_for_pairs(rate: float, queries=PLACES[:, None], keys=PLACES[None]):
    """As the flash kernel does."""
    seeds = jax.random.bits(jax.random.key(3), (HEADS, 1, 1), jnp.uint32)
    return pair_keep_mask(queries, keys, seeds, rate)


DRAWS = {
    "threefry2x32": lambda rate: draw_bits("threefry2x32", rate),
    "rbg": lambda rate: draw_bits("rbg", rate),
    "flash": draw_for_pairs,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_fair_and_independent(name):
    assert worst_deviation(DRAWS[name](0.1), 0.1) < 5


@pytest.mark.slow
def test_the_short_kernel_s_draws_are_fair_and_of_each_seed_its_own():
    first, second = (hash_keep_mask(L, jnp.full((1, 1), seed, jnp.uint32), 0.1) for seed in (1, 2))
    for drawn in (first, second, first[:, :16], first[:16]):
        assert float(drawn.mean()) == pytest.approx(0.9, abs=0.012)
    for other, one in ((second, first), (first[: L // 2], first[L // 2 :]), (first[:, 1:], first[:, :-1])):
        assert float((other & one).mean()) == pytest.approx(0.81, abs=0.01)


@pytest.mark.slow
def test_what_these_statistics_catch():
    """Another rate, and heads, rows or columns that are a little alike."""
    kept = draw_for_pairs(0.1)
    assert worst_deviation(draw_for_pairs(0.101), 0.1) > 5
    alike = jax.random.uniform(jax.random.key(4), kept.shape) < 0.02
    for axis in range(3):
        assert worst_deviation(jnp.where(alike, jnp.roll(kept, 1, axis), kept), 0.1) > 5
    # Rows of another length and blocks of another size have the same draws.
    assert (draw_for_pairs(0.1, PLACES[64:128, None], PLACES[None, 192:]) == kept[:, 64:128, 192:]).all()


def test_keys_that_differ_in_one_bit_draw_alike_by_chance_alone():
    def draw(seed):
        return draw_bernoulli(jax.random.key(seed), 0.5, (200, 64))

    shares = [float((draw(seed) == draw(seed ^ 1)).mean()) for seed in range(0, 64, 2)]
    assert abs(np.mean(shares) - 0.5) < 5 * 0.5 / (12_800 * len(shares)) ** 0.5
    assert np.std(shares) < 1.6 * 0.5 / 12_800**0.5, "no two keys are alike"
    odd = np.asarray(draw_bernoulli(jax.random.key(1), 0.9, (4000, 7)))
    assert odd.shape == (4000, 7) and abs(odd.mean() - 0.9) < 5 * (0.09 / odd.size) ** 0.5
