"""The product in bfloat16 is the float32 product of rounded operands, forward and backward, whatever its form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.einsum import add_bias, mixed_einsum, split_spec

pytestmark = pytest.mark.optimized
SPECS = {
    "dense": ("bld,df->blf", (2, 24, 40), (40, 7)),
    "heads of a dense layer": ("bld,dxy->blxy", (2, 16, 32), (32, 3, 48)),
    "pooler": ("bd,df->bf", (3, 32), (32, 5)),
    "scores": ("blhk,bmhk->bhlm", (2, 20, 3, 8), (2, 20, 3, 8)),
    "values": ("bhlm,bmhk->blhk", (2, 3, 20, 20), (2, 20, 3, 8)),
    "logits of tied words": ("bkd,vd->bkv", (2, 5, 32), (101, 32)),
}


def rounded(x):
    return np.asarray(jnp.asarray(x, jnp.bfloat16), np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_sums_are_float32_of_rounded_operands(name):
    spec, *shapes = SPECS[name]
    left, right, result = split_spec(spec)
    keys = jax.random.split(jax.random.key(0), 3)
    a, b = (jax.random.normal(key, shape) for key, shape in zip(keys[:2], shapes, strict=True))
    states = a.astype(jnp.bfloat16)

    @jax.jit
    def forward_and_backward(states, b):
        out, pull = jax.vjp(lambda a, b: mixed_einsum(spec, a, b, "bfloat16", "float32"), states, b)
        gradient = jax.random.normal(keys[2], out.shape)
        return out, gradient, *pull(gradient)

    out, gradient, of_a, of_b = forward_and_backward(states, b)
    assert (out.dtype, of_a.dtype, of_b.dtype) == (jnp.float32, jnp.bfloat16, jnp.float32)
    gradient = rounded(gradient)
    exact_a = np.einsum(f"{result},{right}->{left}", gradient, rounded(b))
    exact_b = np.einsum(f"{left},{result}->{right}", rounded(a), gradient)
    near = {"rtol": 0, "atol": 2e-6 * len(left) * np.abs(exact_b).max()}
    np.testing.assert_allclose(out, np.einsum(spec, rounded(a), rounded(b)), **near)
    np.testing.assert_allclose(of_b, exact_b, **near)
    np.testing.assert_allclose(of_a.astype(np.float32), exact_a, rtol=2**-8, atol=near["atol"])


def test_gradients_of_biases_are_summed_in_float32():
    x, bias = jnp.ones((3, 700, 8), jnp.bfloat16), jnp.zeros(8)
    of_bias = jax.jit(jax.grad(lambda bias: add_bias(x, bias).astype(jnp.float32).sum()))(bias)
    np.testing.assert_array_equal(of_bias, np.full(8, 2100.0))  # bfloat16 would stop counting at 256
