"""LayerNorm, RMSNorm, softmax and GELU with backward passes of our own, against Flax's and JAX's."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from bert_jax.models.elementwise import gelu, normalize, scale_by_rms, softmax

ROWS, WIDTH = 6, 40
pytestmark = pytest.mark.optimized


def difference(ours, theirs) -> float:
    return max(float(jnp.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module")
def inputs():
    keys = jax.random.split(jax.random.key(0), 4)
    # With an offset, where a variance from squares would be off.
    x = 30 + 3 * jax.random.normal(keys[0], (ROWS, WIDTH))
    return (x, *(jax.random.normal(key, (WIDTH,)) for key in keys[1:3])), jax.random.normal(keys[3], x.shape)


@pytest.mark.slow
def test_norms_and_their_gradients_are_flax_s(inputs):
    (x, scale, bias), gradient = inputs

    def layer_norm(x, scale, bias):
        module = nn.LayerNorm(epsilon=1e-12, use_fast_variance=False)
        return module.apply({"params": {"scale": scale, "bias": bias}}, x)

    def rms_norm(x, scale):
        return nn.RMSNorm(epsilon=1e-5, use_fast_variance=False).apply({"params": {"scale": scale}}, x)

    for ours, theirs, arguments in (
        (lambda *a: normalize(*a, 1e-12, "float32"), layer_norm, (x, scale, bias)),
        (lambda *a: scale_by_rms(*a, 1e-5, "float32"), rms_norm, (x, scale)),
    ):
        (result, own_backward), (expected, backward) = (jax.vjp(run, *arguments) for run in (ours, theirs))
        assert difference([result], [expected]) < 1e-5
        assert difference(own_backward(gradient), backward(gradient)) < 2e-5


@pytest.mark.slow
def test_gelu_and_its_gradient_are_jax_s():
    x = jnp.linspace(-6, 6, 1001)
    expected, backward = jax.vjp(lambda x: jax.nn.gelu(x, approximate=False), x)
    result, own_backward = jax.vjp(gelu, x)
    assert difference([result], [expected]) < 1e-6
    assert difference(own_backward(jnp.ones_like(x)), backward(jnp.ones_like(x))) < 1e-6


@pytest.mark.slow
def test_softmax_and_its_gradient_are_jax_s():
    keys = jax.random.split(jax.random.key(1))
    scores = jnp.where(
        jnp.arange(WIDTH) < 30, jax.random.normal(keys[0], (ROWS, WIDTH)), jnp.finfo(jnp.float32).min
    )
    gradient = jax.random.normal(keys[1], scores.shape)
    expected, backward = jax.vjp(jax.nn.softmax, scores)
    result, own_backward = jax.vjp(softmax, scores)
    assert difference([result], [expected]) == 0
    assert difference(own_backward(gradient), backward(gradient)) < 1e-6


@pytest.mark.parametrize("function", [gelu, lambda x: normalize(x, 1.0, 0.0, 1e-12, "bfloat16")])
def test_what_is_kept_for_the_backward_pass_is_the_input_and_little_else(function):
    x = jnp.ones((64, 256), jnp.bfloat16)
    kept = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(function, x)[1], x))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in kept) < 1.1 * x.size * 2
