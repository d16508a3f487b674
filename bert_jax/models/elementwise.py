"""LayerNorm, RMSNorm, softmax and the exact GELU, which keep only what the backward pass needs.

By default JAX would keep several float32 arrays as large as the activations. Storing and loading them costs more than
all the arithmetic, because these operations are bound by memory.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models.mesh import platform

# The name of the arrays that a layer keeps for its backward pass by default; the rest is cheap to recompute.
SAVED = "kept"


@jax.custom_vjp
def save_activation(x):
    """Return x, and mark it to be kept for the backward pass of its layer."""
    return save_activation_forward(x)[0]


def save_activation_forward(x):
    if x.dtype == jnp.bfloat16 and platform() == "cpu":
        # XLA for CPUs copies bfloat16 by way of float32, but integers as they are.
        bits = checkpoint_name(jax.lax.bitcast_convert_type(x, jnp.uint16), SAVED)
        return jax.lax.bitcast_convert_type(bits, jnp.bfloat16), None
    return checkpoint_name(x, SAVED), None


save_activation.defvjp(save_activation_forward, lambda _, gradient: (gradient,))


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def normalize(x, scale, bias, epsilon: float, dtype: str):
    """Apply LayerNorm over the last axis, computed in float32; the result has type `dtype`."""
    return normalize_forward(x, scale, bias, epsilon, dtype)[0]


def normalize_forward(x, scale, bias, epsilon, dtype):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    # The fast variance, E[x^2] - E[x]^2, is off by 1e-3 on inputs with an offset.
    spread = jax.lax.rsqrt(((wide - mean) ** 2).mean(-1, keepdims=True) + epsilon)
    # Keep these two numbers per token: to recompute them, the backward pass would read all of x twice more.
    (mean, _), (spread, _) = save_activation_forward(mean), save_activation_forward(spread)
    return ((wide - mean) * (spread * scale) + bias).astype(dtype), (x, scale, mean, spread)


def normalize_backward(epsilon, dtype, residuals, gradient):
    x, scale, mean, spread = residuals
    gradient = gradient.astype(jnp.float32)
    unit = (x.astype(jnp.float32) - mean) * spread
    outer = tuple(range(x.ndim - 1))
    scaled = gradient * scale
    along = scaled - scaled.mean(-1, keepdims=True) - unit * (scaled * unit).mean(-1, keepdims=True)
    return (spread * along).astype(x.dtype), (gradient * unit).sum(outer), gradient.sum(outer)


normalize.defvjp(normalize_forward, normalize_backward)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def scale_by_rms(x, scale, epsilon: float, dtype: str):
    """Apply RMSNorm over the last axis, computed in float32; the result has type `dtype`."""
    return scale_by_rms_forward(x, scale, epsilon, dtype)[0]


def scale_by_rms_forward(x, scale, epsilon, dtype):
    wide = x.astype(jnp.float32)
    spread = jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + epsilon)
    spread, _ = save_activation_forward(spread)
    return (wide * (spread * scale)).astype(dtype), (x, scale, spread)


def scale_by_rms_backward(epsilon, dtype, residuals, gradient):
    x, scale, spread = residuals
    gradient = gradient.astype(jnp.float32)
    unit, scaled = x.astype(jnp.float32) * spread, gradient * scale
    along = scaled - unit * (scaled * unit).mean(-1, keepdims=True)
    return (spread * along).astype(x.dtype), (gradient * unit).sum(tuple(range(x.ndim - 1)))


scale_by_rms.defvjp(scale_by_rms_forward, scale_by_rms_backward)


@jax.custom_vjp
def gelu(x):
    """Return the exact GELU: x times the standard normal distribution function at x."""
    return (x.astype(jnp.float32) * normal_cdf(x)).astype(x.dtype)


def normal_cdf(x):
    return 0.5 * (1 + jax.lax.erf(x.astype(jnp.float32) * 0.5**0.5))


def gelu_backward(x, gradient):
    wide = x.astype(jnp.float32)
    density = jnp.exp(-0.5 * wide**2) * (0.5 / jnp.pi) ** 0.5
    return ((gradient.astype(jnp.float32) * (normal_cdf(x) + wide * density)).astype(x.dtype),)


gelu.defvjp(lambda x: (gelu(x), x), gelu_backward)


@jax.custom_vjp
def softmax(scores):
    """Apply softmax over the last axis. The layer keeps the weights for the backward pass, and not the scores."""
    return jax.nn.softmax(scores)


def softmax_forward(scores):
    # Not `save_activation`: its rule within this rule would hide the name, and the product of the scores would be
    # recomputed.
    weights, _ = save_activation_forward(softmax(scores))
    return weights, weights


def softmax_backward(weights, gradient):
    weighted = weights * gradient
    return (weighted - weights * weighted.sum(-1, keepdims=True),)


softmax.defvjp(softmax_forward, softmax_backward)
