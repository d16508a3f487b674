"""Sparse vectors of texts are the formula's, and the logits of all tokens are never in memory together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import sparse_pooling
from bert_jax.models.bert import MaskedLMHead
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.sparse_pooling import ACTIVATIONS, sparse_vectors
from tests.support.jaxprs import array_sizes

CONFIG = EncoderConfig(vocab_size=61, hidden_size=8, num_attention_heads=2, tie_word_embeddings=True)
MASK = np.array([[1] * 11, [1] * 4 + [0] * 7, [0] * 11])


@pytest.fixture(scope="module")
def params():
    random = np.random.RandomState(0)
    draw = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    head = MaskedLMHead(CONFIG, 0).init(jax.random.key(0), draw(1, 1, 8), {}, draw(61, 8), False)["params"]
    return {"mlm": head | {"bias": draw(61)}, "encoder": {"embeddings": {"words": draw(61, 8)}}}


@pytest.fixture(scope="module")
def states():
    return np.random.RandomState(1).standard_normal((3, 11, 8)).astype(np.float32)


def by_formula(params, states, mask, pooling, activation):
    words = params["encoder"]["embeddings"]["words"]
    logits = MaskedLMHead(CONFIG, 0).apply({"params": params["mlm"]}, states, {}, words, False)
    weights = jnp.log1p(jax.nn.relu(logits * mask[..., None]))
    weights = jnp.log1p(weights) if activation == "log1p_relu" else weights
    return weights.max(1) if pooling == "max" else weights.sum(1)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pooling, platform", [("max", "cpu"), ("max", "tpu"), ("sum", "cpu")])
def test_vectors_and_gradients_are_those_of_the_formula(
    pooling, platform, activation, params, states, monkeypatch
):
    monkeypatch.setattr(sparse_pooling, "platform", lambda: platform)
    monkeypatch.setattr(sparse_pooling, "PRODUCTS_AT_ONCE", 7)
    weights = np.random.RandomState(2).standard_normal((3, 61)).astype(np.float32)

    def ours(params, states):
        vectors = sparse_vectors(CONFIG, params, states, MASK, pooling, activation)
        return (vectors * weights).sum(), vectors

    def theirs(params, states):
        vectors = by_formula(params, states, MASK, pooling, activation)
        return (vectors * weights).sum(), vectors

    gradients, vectors = jax.device_get(jax.jit(jax.grad(ours, (0, 1), has_aux=True))(params, states))
    expected, by_hand = jax.device_get(jax.jit(jax.grad(theirs, (0, 1), has_aux=True))(params, states))
    np.testing.assert_allclose(vectors, by_hand, atol=1e-5)
    assert not vectors[2].any() and (vectors[:2] > 0).any()
    for gradient, wanted in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(gradient, wanted, atol=1e-5 * max(1, np.abs(wanted).max()))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_texts_that_share_a_row_get_the_vectors_of_their_own(pooling, params, states):
    separate = np.zeros((1, 3, 11), int)
    for text, tokens in enumerate([range(4), range(4, 9)]):
        separate[0, text, tokens] = 1
    packed = sparse_vectors(CONFIG, params, states[:1], separate, pooling, "relu")
    for text in range(2):
        (places,) = np.nonzero(separate[0, text])
        own = states[:1, places]
        alone = sparse_vectors(CONFIG, params, own, np.ones(own.shape[:2], int), pooling, "relu")
        np.testing.assert_allclose(packed[0, text], alone[0], atol=1e-5)
    assert packed.shape == (1, 3, 61) and not packed[0, 2].any()


def test_padding_does_not_count_even_if_its_states_are_not_numbers(params, states):
    spoilt = np.where(MASK[..., None] > 0, states, np.nan)
    vectors = sparse_vectors(CONFIG, params, spoilt, MASK, "max", "relu")
    np.testing.assert_allclose(
        vectors, sparse_vectors(CONFIG, params, states, MASK, "max", "relu"), atol=1e-6
    )


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_the_logits_of_all_tokens_are_never_in_memory(pooling):
    B, L, V, D = 16, 512, 30522, 8
    config = CONFIG.replace(vocab_size=V)
    shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, np.float32)  # noqa: E731
    head = jax.eval_shape(
        lambda: MaskedLMHead(config, 0).init(
            jax.random.key(0), jnp.zeros((1, 1, D)), {}, jnp.zeros((V, D)), False
        )
    )
    params = {"mlm": head["params"], "encoder": {"embeddings": {"words": shape(V, D)}}}

    def total(params, states):
        return sparse_vectors(config, params, states, jnp.ones((B, L), int), pooling, "relu").sum()

    traced = jax.make_jaxpr(jax.value_and_grad(total))(params, shape(B, L, D))
    assert max(array_sizes(traced.jaxpr)) <= B * L * V / 8
