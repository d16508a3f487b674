"""ALiBi and sinusoidal positions, beside the formulas of their papers."""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.core.config_files import run_config_file
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import family_for
from bert_jax.models.bert import Bert
from bert_jax.models.context import Context
from bert_jax.models.encoder import Embeddings
from bert_jax.models.encoder_config import EncoderConfig, RelativeConfig, RotaryConfig
from bert_jax.models.kernels import attention, blocked_attention, short_attention, xla_attention
from bert_jax.models.kernels.attention import attend, choose_kernel
from bert_jax.models.kernels.request import AttentionRequest
from bert_jax.models.layer_stack import REMAT
from bert_jax.models.relative_terms import RelativeTerms, alibi_terms, head_slopes
from bert_jax.models.sinusoids import sinusoidal_table
from tests.support.cases import long_except
from tests.support.gradients import assert_gradients_equal
from tests.support.seeded_arrays import seeded_batch

RANDOM = np.random.RandomState(0)
# Heads -> the powers of two that are their slopes. Of a power of two n they are 8/n, 16/n ... 8, negative; other
# numbers take those of the power below, then the 1st, 3rd ... of the power above.
POWERS = {
    1: [8],
    2: [4, 8],
    3: [4, 8, 2],
    7: [2, 4, 6, 8, 1, 3, 5],
    8: [1, 2, 3, 4, 5, 6, 7, 8],
    12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
}


@pytest.mark.parametrize("heads", POWERS)
def test_slopes_are_those_of_the_paper(heads):
    np.testing.assert_allclose(head_slopes(heads), [2**-power for power in POWERS[heads]], rtol=1e-12)


H, K, L = 3, 8, 12
MASK = np.array([[1] * 12, [1] * 7 + [0] * 5, [0] * 12], np.int32)
SEGMENT_IDS = np.array([[1] * 5 + [2] * 4 + [3] * 3, [1] * 3 + [2] * 4 + [0] * 5, [0] * 12], np.int32)


def test_scores_fall_with_the_distance_as_the_paper_says():
    """What a bias adds to scores is in kernels/test_relative_attention.py."""
    distances = np.abs(np.arange(1 - L, L))
    slopes = 2.0 ** -np.array(POWERS[H])
    np.testing.assert_allclose(alibi_terms(H, L).bias, -slopes[:, None] * distances, rtol=1e-6)


def gradients_of(run, context, qkv, target):
    """Outputs and gradients by qkv and bias, where tokens are real."""
    real = context.attention_mask[:, :, None] > 0

    def loss(qkv, bias):
        out = jnp.where(real, run(qkv, replace(context, relative=replace(context.relative, bias=bias))), 0)
        return (out * target).sum(), out

    (_, out), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(qkv, context.relative.bias)
    return out, gradients


@pytest.mark.slow
def test_blocks_equal_all_scores_at_once(monkeypatch):
    monkeypatch.setattr(blocked_attention, "BLOCK", 8)
    length = 29  # three blocks and a part of one
    qkv, target = (
        jnp.asarray(RANDOM.standard_normal((3, length, n)), jnp.float32) for n in (3 * H * K, H * K)
    )
    places = np.arange(length)
    segment_ids = np.stack([1 + places // 11, np.where(places < 20, 1 + places // 9, 0), 0 * places])
    bias = jnp.asarray(RANDOM.standard_normal((H, 2 * length - 1)), jnp.float32)
    context = Context((segment_ids > 0).astype(np.int32), segment_ids, relative=RelativeTerms(bias=bias))
    qkv = qkv.reshape(3, length, 3, H * K)
    request = attention.request_of(qkv, context, H, None, 0.0)
    runs = [partial(run, request=request, key=None) for run in (blocked_attention.run, xla_attention.run)]
    (ours, our_gradients), (theirs, their_gradients) = (
        gradients_of(run, context, qkv, target) for run in runs
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    for a, b in zip(our_gradients, their_gradients, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert (runs[0](qkv, context)[2] == 0).all(), "a row with no real token yields exact zeros"
    plain = replace(context, relative=None)
    np.testing.assert_allclose(runs[0](qkv, plain), runs[1](qkv, plain), atol=1e-5)


@pytest.mark.slow
def test_blocks_drop_their_share_of_weights_and_not_the_same_in_each(monkeypatch):
    monkeypatch.setattr(blocked_attention, "BLOCK", 64)
    ones = jnp.zeros((1, 128, 3, 8)).at[:, :, 2].set(1)  # equal scores, values of 1
    context = Context(jnp.ones((1, 128), jnp.int32), relative=RelativeTerms(bias=jnp.zeros((1, 255))))
    request = attention.request_of(ones, context, 1, None, 0.25)
    out = blocked_attention.run(ones, context, request, jax.random.key(0))[0, :, 0]
    assert float(out.mean()) == pytest.approx(1, abs=0.02) and float(out.std()) > 0.02
    assert (out[:64] != out[64:]).any()


def temporaries(length: int, dropout: float) -> int:
    """Bytes of a layer's attention with ALiBi, forward and backward, with what a layer keeps by default."""

    @partial(jax.checkpoint, policy=REMAT["none"])
    def loss(qkv, attention_mask, key):
        context = Context(attention_mask, relative=alibi_terms(2, length))
        out = attend(qkv, context, heads=2, dropout=dropout, dropout_key=key)
        return out.astype(jnp.float32).sum()

    shapes = (
        jax.ShapeDtypeStruct((1, length, 3, 16), jnp.float32),
        jax.ShapeDtypeStruct((1, length), jnp.int32),
        jax.eval_shape(lambda: jax.random.key(0, impl="rbg")),
    )
    return jax.jit(jax.grad(loss)).lower(*shapes).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_memory_of_long_rows_grows_with_the_length():
    of_length = [temporaries(length, dropout=0.1) for length in (4096, 8192)]
    assert of_length[1] < 2.2 * of_length[0] and of_length[1] < 4 * 8192**2 / 2, of_length


def test_auto_takes_blocks_for_long_rows_with_a_bias():
    request = AttentionRequest("tpu", 512, 12, 64, "bfloat16", None, 0.0, terms=("bias",))
    assert choose_kernel("auto", request) == "short"
    assert choose_kernel("auto", replace(request, length=1024)) == "xla"
    assert choose_kernel("auto", replace(request, length=8192)) == "blocked"
    assert choose_kernel("auto", replace(request, length=8192, platform="cpu", dropout=0.1)) == "blocked"
    assert choose_kernel("auto", replace(request, length=8192, terms=("keys",))) == "xla"
    assert choose_kernel("auto", replace(request, length=8192, window=64)) == "xla"
    plain = replace(request, length=8192, terms=(), platform="cpu")
    assert choose_kernel("auto", plain) == "blocked"
    assert choose_kernel("auto", replace(plain, length=1024)) == "xla"


@pytest.mark.slow
def test_the_short_kernel_takes_a_fixed_bias_and_leaves_its_gradient_at_zero():
    length, heads = 128, 2
    qkv, target = (jnp.asarray(RANDOM.standard_normal((2, length, n)), jnp.float32) for n in (3 * 128, 128))
    qkv = qkv.reshape(2, length, 3, 128)
    mask = (np.arange(length) < np.array([[length], [70]])).astype(np.int32)
    context = Context(mask, relative=alibi_terms(heads, length))
    request = AttentionRequest("tpu", length, heads, 64, "float32", None, 0.0, ("bias",))
    seeds = jnp.zeros((2, heads), jnp.uint32)

    def short(qkv, context):
        return short_attention.run(qkv, context, request, seeds, interpret=True)

    xla = partial(xla_attention.run, request=request, key=None)
    (ours, (d_qkv, d_bias)), (theirs, (expected, _)) = (
        gradients_of(run, context, qkv, target) for run in (short, xla)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(d_qkv, expected, atol=1e-4)
    assert not d_bias.any()


def test_the_table_is_the_papers():
    length, width = 300, 7
    table = sinusoidal_table(length, width)
    for position, column in np.ndindex(length, width):
        angle = position / 10_000 ** (2 * (column // 2) / width)
        wave = math.cos(angle) if column % 2 else math.sin(angle)
        assert table[position, column] * math.sqrt(width) == pytest.approx(wave, abs=1e-6)


@pytest.mark.slow
def test_embeddings_are_normalised_words_times_the_root_of_their_width_plus_waves():
    config = EncoderConfig(
        vocab_size=50, hidden_size=16, num_attention_heads=2, type_vocab_size=0, positions="sinusoidal",
        max_position_embeddings=9,
    )  # fmt: skip
    batch = {
        "input_ids": np.array([[4, 5, 6, 7, 8, 0]]), "attention_mask": np.array([[1, 1, 1, 1, 1, 0]]),
        "segment_ids": np.array([[1, 1, 2, 2, 2, 0]]),
    }  # fmt: skip
    module = Embeddings(config)
    variables = module.init(jax.random.key(0), batch, False)
    assert set(variables["params"]) == {"words", "norm"}, "the table is no parameter"
    words = np.asarray(variables["params"]["words"], np.float64)[batch["input_ids"][0, :5]]
    waves = 4 * np.float64(sinusoidal_table(9, 16))[[0, 1, 0, 1, 2]]  # positions restart in each text
    summed = 4 * words + waves
    expected = (summed - summed.mean(1, keepdims=True)) / summed.std(1, keepdims=True)
    np.testing.assert_allclose(module.apply(variables, batch, False)[0, :5], expected, atol=1e-5)


SMALL = EncoderConfig(
    vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=32,
    max_position_embeddings=24, type_vocab_size=0,
)  # fmt: skip
WAYS = {
    "ALiBi": SMALL.replace(positions="alibi", gated=True),
    "sinusoidal": SMALL.replace(positions="sinusoidal"),
    "EuroBERT": SMALL.replace(
        positions="none", block="local_and_global", rotary=RotaryConfig(100.0), num_key_value_heads=2, gated=True,
        bias=False, rms_norm=True, embedding_norm=False, mlm_transform=False, tie_word_embeddings=False,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", long_except(WAYS, ["EuroBERT"]))
def test_remat_and_bfloat16_compute_the_same(name):
    batch = seeded_batch(3, 20, 60, 1, targets=4, seed=0)
    params = jax.jit(Bert(WAYS[name], ("mlm",), pooler=False).init)(jax.random.key(0), batch)["params"]
    params = jax.tree.map(lambda leaf: 5 * leaf, jax.device_get(params))

    def results(**changes):
        module = Bert(WAYS[name].replace(**changes), ("mlm",), pooler=False)

        def loss(params):
            logits = module.apply({"params": params}, batch)["mlm"]
            return jnp.sin(logits).mean(), logits

        (_, logits), gradients = jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(params))
        return logits, gradients

    logits, gradients = results()
    again, of_remat = results(remat="full")
    np.testing.assert_allclose(again, logits, atol=1e-5)
    assert_gradients_equal(of_remat, gradients)
    rounded, _ = results(dtype="bfloat16")
    spread = float(logits.std())
    assert 0 < float(np.abs(rounded - logits).max()) < 0.15 * spread


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(BertJaxError, match="positions = alibi and EncoderConfig.relative.terms"):
        EncoderConfig(positions="alibi", relative=RelativeConfig(("bias",), 32, 128))
    with pytest.raises(
        BertJaxError, match="num_key_value_heads = 5 does not divide num_attention_heads = 12"
    ):
        EncoderConfig(num_key_value_heads=5)
    assert EncoderConfig(num_key_value_heads=12) == EncoderConfig()


@pytest.mark.parametrize(
    ("names", "family", "longest"),
    [("base,alibi", "jina_bert", 8192), ("tiny,laptop,sinusoidal", "sinusoidal_bert", 512)],
)
def test_recipes_of_pre_training(names, family, longest):
    model = run_config_file(f"configs/pretrain.py:{names}")["model"]
    config = EncoderConfig(**model)
    assert family_for(config).model_type == family and config.max_position_embeddings == longest
