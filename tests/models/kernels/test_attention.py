import functools
from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.models.context import Context
from bert_jax.models.dropout import apply_dropout
from bert_jax.models.kernels import short_attention, splash_attention, xla_attention
from bert_jax.models.kernels.attention import KERNELS, attend, choose_kernel
from bert_jax.models.kernels.request import AttentionRequest, make_attention_mask, masked_segment_ids
from tests.support.cases import long_except

L, H, K = 256, 2, 64
RANDOM = np.random.RandomState(0)
Q, KEY, V, TARGET = (jnp.asarray(RANDOM.standard_normal((3, L, H, K)), jnp.float32) for _ in range(4))
QKV = jnp.stack([Q, KEY, V], axis=2).reshape(3, L, 3, H * K)
MASK = jnp.asarray(np.arange(L) < np.array([L, 100, 0])[:, None], jnp.int32)  # full, short and dead rows
SEGMENT_IDS = jnp.asarray(
    np.repeat([[1, 1, 2, 3, 3, 3, 0, 0], [1, 2, 2, 0, 0, 0, 0, 0], [0] * 8], L // 8, axis=1), jnp.int32
)


def by_hand(q, k, v, attention_mask, segment_ids, window):
    """The definition, one query at a time."""
    out = np.zeros(q.shape)
    for b, i, h in np.ndindex(q.shape[0], q.shape[1], q.shape[2]):
        sees = [
            j for j in range(q.shape[1])
            if attention_mask[b, j]
            and (segment_ids is None or (segment_ids[b, i] and segment_ids[b, i] == segment_ids[b, j]))
            and (window is None or abs(i - j) <= window)
        ]  # fmt: skip
        if sees:
            scores = np.array([q[b, i, h] @ k[b, j, h] for j in sees]) / np.sqrt(q.shape[3])
            weights = np.exp(scores - scores.max())
            out[b, i, h] = (weights / weights.sum()) @ np.array([v[b, j, h] for j in sees])
    return out


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_xla_is_the_definition(packed, window):
    small = slice(0, 12)
    q, k, v = (np.asarray(x[:, small], np.float64) for x in (Q, KEY, V))
    attention_mask = np.array([[1] * 12, [1] * 5 + [0] * 7, [0] * 12])
    segment_ids = (
        np.array([[1] * 4 + [2] * 6 + [0] * 2, [1] * 2 + [2] * 3 + [0] * 7, [0] * 12]) if packed else None
    )
    ours = attend(QKV[:, small], Context(attention_mask, segment_ids), heads=H, window=window, kernel="xla")
    ours = ours.reshape(q.shape)
    np.testing.assert_allclose(ours, by_hand(q, k, v, attention_mask, segment_ids, window), atol=1e-5)


def test_mask_as_a_picture():
    segment_ids = jnp.array([[1, 1, 2, 2, 2, 0]])
    grid = make_attention_mask(segment_ids > 0, segment_ids, 1)[0, 0].astype(int)
    assert ["".join(map(str, row)) for row in np.asarray(grid)] == [
        "110000",
        "110000",
        "001100",
        "001110",
        "000110",
        "000000",
    ]


CASES = {
    "padding": (None, None),
    "packed": (SEGMENT_IDS, None),
    "window": (None, 40),
    "packed and window": (SEGMENT_IDS, 40),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "rate"),
    long_except(product(CASES, (0.0, 0.3)), [("packed and window", 0.0), ("packed and window", 0.3)]),
)
def test_short_is_the_definition_forward_and_gradient(case, rate):
    segment_ids, window = CASES[case]
    attention_mask = MASK if segment_ids is None else (segment_ids > 0).astype(jnp.int32)
    context = Context(attention_mask, segment_ids)
    seeds = jax.random.bits(jax.random.key(0), (3, H), jnp.uint32)
    request = AttentionRequest("tpu", L, H, K, "float32", window=window, dropout=rate)

    def ours(qkv):
        return short_attention.run(qkv, context, request, seeds, interpret=True)

    def plain(qkv):
        q, k, v = (qkv[:, :, part].reshape(3, L, H, K) for part in range(3))
        allow = make_attention_mask(attention_mask, segment_ids, window)
        scores = jnp.einsum("blhk,bmhk->bhlm", q * K**-0.5, k)
        weights = jax.nn.softmax(jnp.where(allow, scores, jnp.finfo(jnp.float32).min))
        survives = jax.vmap(jax.vmap(lambda seed: short_attention.hash_keep_mask(L, seed[None, None], rate)))(
            seeds
        )
        weights = jnp.where(survives, weights / (1 - rate), 0)
        out = jnp.einsum("bhlm,bmhk->blhk", weights, v).reshape(3, L, H * K)
        return jnp.where(masked_segment_ids(context)[..., None] > 0, out, 0)

    (result, backward), (expected, plain_backward) = (jax.vjp(jax.jit(run), QKV) for run in (ours, plain))
    np.testing.assert_allclose(result, expected, atol=1e-5)
    target = TARGET.reshape(result.shape)
    np.testing.assert_allclose(backward(target)[0], plain_backward(target)[0], atol=1e-4)
    assert (result[2] == 0).all(), "a row with no real token yields exact zeros"


@pytest.mark.slow
@pytest.mark.parametrize("case", long_except(CASES, ["packed and window"]))
def test_splash_equals_xla_forward_and_gradient(case):
    segment_ids, window = CASES[case]
    attention_mask = MASK if segment_ids is None else (segment_ids > 0).astype(jnp.int32)
    real, target = (attention_mask > 0)[:, :, None], TARGET.reshape(3, L, H * K)
    request = AttentionRequest("tpu", L, H, K, "float32", window=window, dropout=0.0)

    def total(run, qkv):
        out = run(qkv, Context(attention_mask, segment_ids), request, None)
        return (jnp.where(real, out, 0) * target).sum(), out

    splash = functools.partial(splash_attention.run, interpret=True)
    results = [
        jax.jit(jax.value_and_grad(functools.partial(total, run), has_aux=True))(QKV)
        for run in (splash, xla_attention.run)
    ]
    ((_, ours), our_gradient), ((_, theirs), their_gradient) = results
    np.testing.assert_allclose(jnp.where(real, ours, 0), jnp.where(real, theirs, 0), atol=1e-5)
    np.testing.assert_allclose(our_gradient, their_gradient, atol=1e-4)
    assert (ours[2] == 0).all(), "a row with no real token yields exact zeros"


@pytest.mark.slow
def test_dead_rows_give_zeros_and_no_nan_in_the_gradient():
    out, gradient = jax.value_and_grad(
        lambda qkv: attend(qkv, Context(MASK), heads=H, kernel="xla")[2].sum()
    )(QKV)
    assert out == 0
    assert (attend(QKV, Context(MASK, SEGMENT_IDS), heads=H, kernel="xla")[0, 192:] == 0).all()
    assert np.isfinite(gradient).all()


@pytest.mark.slow
def test_dropout_follows_the_rows_keeps_the_expectation_and_zeroes_its_share():
    x, key, rows = jnp.ones((100, 100)), jax.random.key(0), jnp.arange(100)
    whole = apply_dropout(x, 0.3, key, rows)
    assert (apply_dropout(x[2:4], 0.3, key, rows[2:4]) == whole[2:4]).all(), "whatever batch they are in"
    assert (whole[0] != whole[1]).any()
    for dropped in (whole, apply_dropout(x, 0.3, key)):
        assert float((dropped == 0).mean()) == pytest.approx(0.3, abs=0.02)
        assert float(dropped.mean()) == pytest.approx(1, abs=0.03)
    first, second = (
        attend(QKV, Context(MASK), heads=H, dropout=0.5, dropout_key=jax.random.key(seed), kernel="xla")
        for seed in (0, 1)
    )
    assert (first != second).any()


TPU = AttentionRequest("tpu", 512, 12, 64, "bfloat16", window=None, dropout=0.0)
GPU = replace(TPU, platform="gpu")


@pytest.mark.parametrize(
    ("kernel", "request_", "message"),
    [
        ("short", replace(TPU, platform="cpu"), "TPU"),
        ("short", replace(TPU, length=640), "not 640"),
        ("short", replace(TPU, heads=3), "not 3 heads of 64"),
        ("splash", replace(TPU, platform="cpu"), "TPU"),
        ("splash", replace(TPU, length=500), "not 500"),
        ("splash", replace(TPU, dropout=0.1), "attention_probs_dropout_prob=0"),
        ("cudnn", TPU, "NVIDIA"),
        ("cudnn", replace(GPU, dtype="float32"), 'dtype="bfloat16"'),
        ("cudnn", replace(GPU, dropout=0.1), "attention_probs_dropout_prob=0"),
        ("cudnn", replace(GPU, window=64), "local attention"),
        ("cudnn", replace(GPU, head_size=20), "not 20"),
        ("plash", TPU, 'did you mean "splash"?'),
    ],
)
def test_what_a_kernel_cannot_do_it_refuses_and_auto_falls_back(kernel, request_, message):
    with pytest.raises(BertJaxError) as error:
        choose_kernel(kernel, request_)
    assert message in str(error.value)
    assert choose_kernel("auto", request_) != kernel


def test_auto_takes_the_kernel_of_the_platform():
    assert choose_kernel("auto", TPU) == choose_kernel("auto", replace(TPU, dropout=0.1)) == "short"
    assert choose_kernel("auto", replace(TPU, length=1024)) == "splash"
    assert choose_kernel("auto", replace(TPU, length=1024, dropout=0.1)) == "xla"
    assert choose_kernel("auto", GPU) == "cudnn"
    assert choose_kernel("auto", replace(GPU, dtype="float32")) == "xla"
    assert choose_kernel("auto", replace(TPU, platform="cpu")) == "xla"
    assert set(KERNELS) == {"short", "splash", "cudnn", "flash", "banded", "blocked", "xla"}


def test_refusal_reaches_the_person_who_configured_it():
    with pytest.raises(BertJaxError, match='"splash"'):
        attend(QKV, Context(MASK), heads=H, kernel="splash")
