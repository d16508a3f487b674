"""Layers with local attention, and rotary positions, against their definitions."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import rotary
from bert_jax.models.context import Context
from bert_jax.models.encoder_config import EncoderConfig, RotaryConfig
from bert_jax.models.kernels import attention, banded_attention
from bert_jax.models.kernels.attention import attend, attend_locally_or_globally, choose_kernel
from bert_jax.models.kernels.request import split_qkv
from tests.support.cases import long_except

H, K, L = 2, 8, 300
RANDOM = np.random.RandomState(0)
QKV = jnp.asarray(RANDOM.standard_normal((3, L, 3, H * K)), jnp.float32)
TARGET = jnp.asarray(RANDOM.standard_normal((3, L, H * K)), jnp.float32)
MASK = (np.arange(L) < np.array([L, 130, 0])[:, None]).astype(np.int32)
SEGMENT_IDS = np.repeat([[1, 1, 2, 3, 3, 3], [1, 2, 2, 0, 0, 0], [0] * 6], L // 6, axis=1)
CONTEXTS = {"padding": Context(MASK), "packed": Context((SEGMENT_IDS > 0).astype(np.int32), SEGMENT_IDS)}


def by_kernel(kernel, context, window, qkv):
    request = attention.request_of(qkv, context, H, window, 0.0)
    return attention.KERNELS[kernel].run(qkv, context, request, None)


def gradient(run, context, qkv=QKV, target=TARGET):
    real = (context.attention_mask > 0)[:, :, None]

    def total(qkv):
        out = run(qkv)
        return (jnp.where(real, out, 0) * target).sum(), out

    (_, out), gradients = jax.jit(jax.value_and_grad(total, has_aux=True))(qkv)
    return jnp.where(real, out, 0), gradients


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "window"),
    long_except(product(CONTEXTS, (5, 64, 150)), [("packed", 5), ("padding", 150)]),
)
def test_bands_equal_all_scores_at_once(name, window):
    context = CONTEXTS[name]
    runs = [partial(by_kernel, kernel, context, window) for kernel in ("banded", "xla")]
    (ours, our_gradient), (theirs, their_gradient) = (gradient(run, context) for run in runs)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(our_gradient, their_gradient, atol=1e-5)
    assert (runs[0](QKV)[2] == 0).all(), "a row with no real token yields exact zeros"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "is_local"),  # by bands, and by masks
    long_except(product((3, 40), (False, True)), [(3, True)]),
)
def test_a_layer_type_known_at_run_time_equals_one_known_before(is_local, window, monkeypatch):
    monkeypatch.setattr(banded_attention, "MIN_BLOCK", 8)
    context = CONTEXTS["packed"]
    run = partial(attend_locally_or_globally, context=context, window=window, heads=H)
    expected = gradient(partial(run, is_local=is_local), context)
    traced = gradient(lambda qkv: run(qkv, is_local=jnp.asarray(is_local)), context)
    for a, b in zip(traced, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    other = partial(run, is_local=not is_local)(QKV)
    assert float(jnp.abs(other[0] - expected[0][0]).max()) > 0.1, "the window matters"


def test_auto_takes_bands_where_rows_are_many_times_the_window():
    request = attention.request_of(jnp.zeros((1, 8192, 3, 16)), Context(None), 2, 64, 0.0)
    assert choose_kernel("auto", request) == "banded"
    short = attention.request_of(jnp.zeros((1, 512, 3, 16)), Context(None), 2, 64, 0.0)
    assert choose_kernel("auto", short) == "xla"


def temporaries(length: int, window: int | None, kernel: str = "auto") -> int:
    """Bytes of a layer's attention, forward and backward."""

    def loss(qkv, attention_mask):
        return (
            attend(qkv, Context(attention_mask), heads=4, window=window, kernel=kernel)
            .astype(jnp.float32)
            .sum()
        )

    arguments = (
        jax.ShapeDtypeStruct((1, length, 3, 64), jnp.float32),
        jax.ShapeDtypeStruct((1, length), jnp.int32),
    )
    return jax.jit(jax.grad(loss)).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_memory_of_local_attention_grows_with_the_length():
    of_local = [temporaries(length, 64) for length in (2048, 4096, 8192)]
    assert of_local[1] < 2.1 * of_local[0] and of_local[2] < 2.1 * of_local[1], of_local
    assert of_local[2] < 4 * 8192**2, "less than the scores of one head"
    assert temporaries(4096, None, "xla") > 3.5 * temporaries(2048, None, "xla")


@pytest.mark.slow
def test_rotary_products_depend_on_the_distance_alone():
    config = EncoderConfig(hidden_size=H * K, num_attention_heads=H, rotary=RotaryConfig(1000.0))
    table = rotary.rotary_tables(config, 40)[0]
    same = jnp.broadcast_to(QKV[:1, :1], (1, 40, 3, H * K))
    q, k, v = (part[0] for part in split_qkv(rotary.rotate(same, table), K))
    np.testing.assert_array_equal(v, same[0, :, 2].reshape(40, H, K))
    scores = np.einsum("lhk,mhk->hlm", q, k)
    np.testing.assert_allclose(scores[:, 3, 1:20], scores[:, 13, 11:30], atol=1e-5)
    assert np.abs(scores[:, 3, 3] - scores[:, 3, 4]).min() > 1e-3
    # Number i of a head turns with number i + K/2, by place / theta^(2i / K).
    angle = 7 / 1000 ** (2 * 1 / K)
    first, second = same[0, 7, 0, 1], same[0, 7, 0, 1 + K // 2]
    np.testing.assert_allclose(q[7, 0, 1], first * np.cos(angle) - second * np.sin(angle), atol=1e-6)
    np.testing.assert_allclose(q[7, 0, 1 + K // 2], second * np.cos(angle) + first * np.sin(angle), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("turn", [rotary.turn_pairs, rotary.turn_side_by_side])
def test_turns_and_their_gradients_are_the_same_on_every_processor(turn, monkeypatch):
    table = rotary.rotary_tables(
        EncoderConfig(hidden_size=H * K, num_attention_heads=H, rotary=RotaryConfig(50.0)), L
    )[0]

    def plain(qkv):
        heads = qkv.reshape(3, L, 3, H, K)
        first, second = jnp.split(heads, 2, axis=-1)
        cosine, sine = table[:, :, None, None]
        both = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
        return jnp.where((np.arange(3) < 2)[:, None, None], both, heads).reshape(qkv.shape)

    monkeypatch.setattr(rotary, "turn_pairs", turn)
    (ours, backward), (theirs, plain_backward) = (
        jax.vjp(run, QKV) for run in (lambda qkv: rotary.rotate(qkv, table), plain)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    np.testing.assert_allclose(backward(QKV + 1)[0], plain_backward(QKV + 1)[0], atol=1e-6)
