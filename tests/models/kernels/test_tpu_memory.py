"""The TPU kernels in an interpreter of the TPU's memory: two cores that race, buffers that start as NaN."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models.context import Context
from bert_jax.models.encoder_config import RelativeConfig
from bert_jax.models.kernels import short_attention, splash_attention
from bert_jax.models.kernels.request import AttentionRequest
from bert_jax.models.relative_terms import RelativeTerms, row_of_distances

pytestmark = pytest.mark.long

B, H, K = 3, 2, 64
DISTANCES = RelativeConfig(("keys", "queries"), buckets=16, max_distance=64)
TERMS = {"bias": (H, 2 * 128 - 1)} | dict.fromkeys(("keys", "queries"), (2 * DISTANCES.span, H, K))
# A core beside the other one: what a chip of v4 or v5p divides among its two cores must not overlap.
MEMORY = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan", num_cores_or_threads=2)
REQUEST = AttentionRequest("tpu", 128, H, K, "float32", window=None, dropout=0.0)
LONGER = replace(REQUEST, length=640)  # five blocks


def attend_row_by_row(qkv, context: Context, request: AttentionRequest, seeds, interpret):
    """The interpreter refuses a kernel over rows that JAX has given an axis of its grid."""
    rows = [
        splash_attention.run(
            qkv[b : b + 1], jax.tree.map(lambda x, b=b: x[b : b + 1], context), request, seeds, interpret
        )
        for b in range(B)
    ]
    return jnp.concatenate(rows)


CASES = {
    "short": (short_attention.run, replace(REQUEST, dropout=0.1), ()),
    "short, a window, rows of 256": (short_attention.run, replace(REQUEST, length=256, window=40), ()),
    "short, a bias": (short_attention.run, replace(REQUEST, dropout=0.1), ("bias",)),
    "short, keys and queries": (short_attention.run, replace(REQUEST, dropout=0.1), ("keys", "queries")),
    "splash": (attend_row_by_row, LONGER, ()),
    "splash, a window": (attend_row_by_row, replace(LONGER, window=64), ()),
}


@pytest.fixture(autouse=True)
def _fresh_memory():
    yield
    pltpu.reset_tpu_interpret_mode_state()  # a race that is found leaves its state behind


@pytest.mark.parametrize("name", CASES)
def test_no_core_races_and_nothing_is_read_before_it_is_written(name):
    run, request, terms = CASES[name]
    random, L = np.random.default_rng(0), request.length

    def draw(*shape: int):
        return jnp.asarray(random.standard_normal(shape), jnp.float32)

    place = np.arange(L)
    packed = np.where(place < L // 3, 1, np.where(place < L // 2, 2, 0))  # two sequences, and padding
    segment_ids = jnp.asarray(np.stack([np.ones(L), packed, np.zeros(L)]), jnp.int32)
    seeds = jax.random.bits(jax.random.key(0), (B, H), jnp.uint32)
    qkv, target = draw(B, L, 3, H * K), draw(B, L, H * K)
    tables = {term: draw(*TERMS[term]) for term in terms}
    rows = jnp.asarray(row_of_distances(DISTANCES, L))

    def attend(interpret, qkv, tables):
        relative = RelativeTerms(rows=rows, **tables) if tables else None
        context = Context(jnp.sign(segment_ids), segment_ids, relative=relative)
        return run(qkv, context, request, seeds, interpret=interpret)

    def results(interpret):
        out, backward = jax.vjp(partial(attend, interpret), qkv, tables)
        return out, backward(target)

    found, expected = (jax.tree.leaves(jax.jit(results, static_argnums=0)(how)) for how in (MEMORY, True))
    for array, same in zip(found, expected, strict=True):
        assert np.isfinite(array).all()
        np.testing.assert_allclose(array, same, atol=1e-4)
