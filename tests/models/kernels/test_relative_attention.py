"""Attention's relative terms, against their definition one query and key at a time."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from bert_jax.core.errors import BertJaxError
from bert_jax.models import relative_terms
from bert_jax.models.context import Context
from bert_jax.models.encoder_config import EncoderConfig, RelativeConfig
from bert_jax.models.kernels import short_attention
from bert_jax.models.kernels.attention import KERNELS, attend, choose_kernel
from bert_jax.models.kernels.request import (
    AttentionRequest,
    make_attention_mask,
    masked_segment_ids,
    scale_of,
)
from bert_jax.models.relative_terms import RelativeTerms, distance_columns, row_of_distances
from tests.support.gradients import assert_gradients_equal

L, H, K = 11, 2, 3
RANDOM = np.random.RandomState(0)
QKV = RANDOM.standard_normal((3, L, 3, H * K)).astype(np.float32)
MASK = np.array([[1] * L, [1] * 5 + [0] * 6, [0] * L])
SEGMENT_IDS = np.array([[1] * 4 + [2] * 6 + [0], [1] * 2 + [2] * 3 + [0] * 6, [0] * L])
TARGET = RANDOM.standard_normal((3, L, H * K)).astype(np.float32)
# The far distances share rows.
CONFIG = RelativeConfig(("keys", "queries"), buckets=6, max_distance=8)
ROWS = row_of_distances(CONFIG, L)
TABLES = {name: RANDOM.standard_normal((12, H, K)).astype(np.float32) for name in ("keys", "queries")}
BIAS = RANDOM.standard_normal((H, 2 * L - 1)).astype(np.float32)


def terms(names, tables=TABLES, bias=BIAS) -> RelativeTerms:
    if "bias" in names:
        return RelativeTerms(bias=bias)
    return RelativeTerms(rows=jnp.asarray(ROWS), **{name: tables[name] for name in names})


def by_hand(names, segment_ids):
    """The definition, one query at a time."""
    q, k, v = (QKV[:, :, part].reshape(3, L, H, K).astype(float) for part in range(3))
    scale = (K * (1 + len(set(names) & {"keys", "queries"}))) ** -0.5
    out = np.zeros(q.shape)
    for b, i, h in np.ndindex(*q.shape[:3]):
        sees = [
            j
            for j in range(L)
            if MASK[b, j] and (segment_ids is None or 0 < segment_ids[b, i] == segment_ids[b, j])
        ]
        values = []
        for j in sees:
            row = ROWS[j - i + L - 1]
            score = scale * q[b, i, h] @ k[b, j, h]
            score += scale * q[b, i, h] @ TABLES["keys"][row, h] * ("keys" in names)
            score += scale * k[b, j, h] @ TABLES["queries"][row, h] * ("queries" in names)
            values.append(score + BIAS[h, j - i + L - 1] * ("bias" in names))
        if sees:
            weights = np.exp(np.array(values) - max(values))
            out[b, i, h] = (weights / weights.sum()) @ v[b, sees, h]
    return out.reshape(3, L, H * K)


ALL = [("bias",), ("keys",), ("queries",), ("keys", "queries")]


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("names", ALL)
def test_attention_adds_what_distances_say(names, packed):
    segment_ids = SEGMENT_IDS if packed else None
    ours = attend(QKV, Context(MASK, segment_ids, relative=terms(names)), heads=H, kernel="xla")
    np.testing.assert_allclose(ours, by_hand(names, segment_ids), atol=1e-5)


def plain(states, table, rows, dtype):
    return jnp.einsum("blhk,lmhk->bhlm", states, table[rows[distance_columns(L)]])


@pytest.mark.slow
@pytest.mark.parametrize("way", [relative_terms.multiply_and_gather, relative_terms.multiply_and_select])
def test_both_ways_to_read_tables_are_the_definition_forward_and_gradient(way):
    states, table = QKV[:, :, 0].reshape(3, L, H, K), TABLES["keys"]
    target = RANDOM.standard_normal((3, H, L, L)).astype(np.float32)

    def run(way):
        return jax.vjp(lambda states, table: way(states, table, jnp.asarray(ROWS), "float32"), states, table)

    (ours, backward), (expected, plain_backward) = run(way), run(plain)
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert_gradients_equal(backward(target), plain_backward(target))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "heads", "rate", "packed", "window"),
    [
        pytest.param(("bias",), 2, 0.3, True, None, marks=pytest.mark.long),
        (("keys", "queries"), 1, 0.3, False, 40),
        pytest.param(("keys", "queries"), 2, 0.0, True, None, marks=pytest.mark.long),
    ],
)
def test_the_kernel_is_the_definition_forward_and_gradient(names, heads, rate, packed, window):
    L, H, K = 128, heads, 128 // heads
    random = np.random.RandomState(0)
    qkv = random.standard_normal((3, L, 3, H * K)).astype(np.float32)
    attention_mask = (np.arange(L) < np.array([L, 50, 0])[:, None]).astype(int)  # full, short and dead rows
    segment_ids = attention_mask * (1 + (np.arange(L) > 30)) if packed else None
    rows = jnp.asarray(row_of_distances(RelativeConfig(("keys",), buckets=16, max_distance=64), L))
    values = {name: random.standard_normal((32, H, K)).astype(np.float32) for name in ("keys", "queries")}
    values["bias"] = random.standard_normal((H, 2 * L - 1)).astype(np.float32)
    values = {name: values[name] for name in names}
    seeds = jax.random.bits(jax.random.key(0), (3, H), jnp.uint32)
    request = AttentionRequest("tpu", L, H, K, "float32", window, rate, names)

    def context_of(values):
        return Context(attention_mask, segment_ids, relative=RelativeTerms(rows=rows, **values))

    def ours(qkv, values):
        return short_attention.run(qkv, context_of(values), request, seeds, interpret=True)

    def plain(qkv, values):
        context = context_of(values)
        q, k, v = (qkv[:, :, part].reshape(3, L, H, K) for part in range(3))
        scale = scale_of(K, context.relative)
        scores = jnp.einsum("blhk,bmhk->bhlm", q * scale, k)
        scores += relative_terms.relative_scores(context.relative, q * scale, k, scale, "float32")
        allow = make_attention_mask(attention_mask, segment_ids, window)
        weights = jax.nn.softmax(jnp.where(allow, scores, jnp.finfo(jnp.float32).min))
        keep = jax.vmap(jax.vmap(lambda seed: short_attention.hash_keep_mask(L, seed[None, None], rate)))
        weights = jnp.where(keep(seeds), weights / (1 - rate), 0) if rate else weights
        out = jnp.einsum("bhlm,bmhk->blhk", weights, v).reshape(3, L, H * K)
        return jnp.where(masked_segment_ids(context)[..., None] > 0, out, 0)

    (result, backward), (expected, of_plain) = (jax.vjp(jax.jit(run), qkv, values) for run in (ours, plain))
    np.testing.assert_allclose(result, expected, atol=1e-5)
    target = random.standard_normal(result.shape).astype(np.float32)
    assert_gradients_equal(backward(target), of_plain(target))
    assert (result[2] == 0).all(), "a row with no real token yields exact zeros"


@pytest.mark.slow
def test_the_kernel_s_skew_turns_back():
    length = 128
    places = RANDOM.standard_normal((length, length)).astype(np.float32)

    def columns_of(places):
        return short_attention.flipped(unskew(places))

    def run(places):
        return pl.pallas_call(
            lambda x, out: out.__setitem__(..., columns_of(x[...])),
            out_shape=jax.ShapeDtypeStruct((length, 2 * length), jnp.float32),
            interpret=True,
        )(places)

    unskew = short_attention.unskew
    by_distance = np.asarray(run(places))
    for i in (0, 1, length // 2, length - 1):
        expected = np.zeros(2 * length)
        expected[length - 1 - i : 2 * length - 1 - i] = places[i]
        np.testing.assert_array_equal(by_distance[i], expected)


def test_rows_are_flipped_block_by_block():
    x = RANDOM.standard_normal((384, 5)).astype(np.float32)
    np.testing.assert_array_equal(short_attention.flipped(x), x[::-1])


def test_the_gradient_of_a_bias_is_summed_over_the_scores_that_it_reached():
    _, backward = jax.vjp(relative_terms.expand_distances, BIAS)
    (gradient,) = backward(jnp.ones((H, L, L)))
    np.testing.assert_array_equal(gradient[0], L - np.abs(np.arange(1 - L, L)))


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 2, 33, 130, 700])
def test_rows_of_distances_are_those_of_transformers(length):
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    mpnet = pytest.importorskip("transformers.models.mpnet.modeling_mpnet")
    states = torch.zeros(1, length, 4)
    for buckets, max_distance in ((256, 512), (8, 20), (64, 2048), (256, 256), (0, 40)):
        theirs = v2.build_relative_position(states, states, buckets, max_distance if buckets else -1)[
            0
        ].numpy()
        span = buckets or max_distance
        ours = row_of_distances(RelativeConfig(("keys",), buckets, max_distance), length)
        np.testing.assert_array_equal(ours[distance_columns(length)], np.clip(theirs + span, 0, 2 * span - 1))
    distances = torch.arange(length)[None] - torch.arange(length)[:, None]
    ours = row_of_distances(RelativeConfig(("bias",), 32, 128), length)
    theirs = mpnet.MPNetEncoder.relative_position_bucket(distances).numpy()
    np.testing.assert_array_equal(ours[distance_columns(length)], theirs)


def test_kernels_without_relative_terms_say_so():
    for name, platform, instead in (("splash", "tpu", "xla"), ("cudnn", "gpu", "flash")):
        request = AttentionRequest(platform, 1024, 12, 64, "bfloat16", None, 0.0, ("keys",))
        assert KERNELS[name].refusal(request) == "does not support relative positions"
        assert choose_kernel("auto", request) == instead
    assert choose_kernel("auto", replace(request, platform="tpu", length=512)) == "short"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"terms": ("c2p",)}, "relative.terms"),
        ({"terms": ("bias",), "max_distance": 128}, "buckets.*not 0"),
        ({"terms": ("keys",), "buckets": 7, "max_distance": 128}, "buckets.*not 7"),
        ({"terms": ("keys",), "buckets": -4, "max_distance": 128}, "buckets"),
        ({"terms": ("keys",), "buckets": 256, "max_distance": 100}, "max_distance.*130"),
        ({"terms": ("keys",), "max_distance": -1}, "max_distance.*-1"),
    ],
)  # fmt: skip
def test_absurd_distances_are_refused(fields, message):
    with pytest.raises(BertJaxError, match=message):
        EncoderConfig(relative=RelativeConfig(**fields))
