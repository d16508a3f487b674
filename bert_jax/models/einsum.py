"""The product of all dense layers, heads and attention: operands in the type of the computation, sums in float32.

JAX's own backward rule would multiply a float32 cotangent by a bfloat16 operand, which is slow on every processor. Here
the cotangent is rounded like the operands. TPUs and GPUs accumulate in float32 by themselves. XLA for CPUs is fast for
only one form of product, to which `matrices` converts any product: the left operand is summed over its last axis, and
the result is float32.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from bert_jax.models.mesh import platform

BLOCK = 16  # float32 numbers in a cache line


@partial(jax.custom_vjp, nondiff_argnums=(0, 3, 4))
def mixed_einsum(spec: str, a, b, dtype: str, result_dtype: str):
    """Compute an einsum of two operands rounded to `dtype`; `spec` names each axis with a letter.

    >>> mixed_einsum("bld,df->blf", jnp.ones((1, 2, 3)), jnp.ones((3, 4)), "bfloat16", "float32")[0, 0, 0].item()
    3.0
    """
    return einsum(spec, a.astype(dtype), b.astype(dtype), result_dtype)


def mixed_einsum_backward(spec, dtype, result_dtype, operands, gradient):
    (left, right, result), (a, b) = split_spec(spec), operands
    gradient = gradient.astype(dtype)
    gradient_a = einsum(f"{result},{right}->{left}", gradient, b.astype(dtype), a.dtype)
    gradient_b = einsum(f"{left},{result}->{right}", a.astype(dtype), gradient, b.dtype)
    return gradient_a, gradient_b


mixed_einsum.defvjp(
    lambda spec, a, b, dtype, result_dtype: (mixed_einsum(spec, a, b, dtype, result_dtype), (a, b)),
    mixed_einsum_backward,
)


def split_spec(spec: str) -> tuple[str, str, str]:
    operands, result = spec.split("->")
    left, right = operands.split(",")
    return left, right, result


def einsum(spec: str, a, b, result_dtype):
    if platform() == "cpu":
        return matrices(spec, a, b).astype(result_dtype)
    return jnp.einsum(spec, a, b, preferred_element_type=result_dtype)


def matrices(spec: str, a, b):
    """Compute the einsum as products of matrices [N, R, S] x [N, S, C] or [N, C, S], in float32."""
    left, right, result = split_spec(spec)
    batch = "".join(axis for axis in left if axis in right and axis in result)
    summed = "".join(axis for axis in left if axis in right and axis not in result)
    rows = "".join(axis for axis in left if axis not in right)
    columns = "".join(axis for axis in right if axis not in left)
    if result == batch + columns + rows:
        # XLA would fold the transposition of the result into a form of product that it cannot compute.
        return matrices(f"{right},{left}->{result}", b, a)
    sizes = dict(zip(left + right, a.shape + b.shape, strict=True))
    N, R, S, C = (math.prod(sizes[axis] for axis in axes) for axes in (batch, rows, summed, columns))

    if left == batch + summed + rows:
        a = transpose_in_memory(a.reshape(N, S, R))
    else:
        a = jnp.einsum(f"{left}->{batch}{rows}{summed}", a).reshape(N, R, S)
    if right == batch + columns + summed:
        b, axis = b.reshape(N, C, S), 2
    else:
        b, axis = jnp.einsum(f"{right}->{batch}{summed}{columns}", b).reshape(N, S, C), 1
    if batch:
        out = jax.lax.dot_general(a, b, (((2,), (axis,)), ((0,), (0,))), preferred_element_type=jnp.float32)
    else:
        out = jax.lax.dot_general(
            a[0], b[0], (((1,), (axis - 1,)), ((), ())), preferred_element_type=jnp.float32
        )
    axes = batch + rows + columns
    return jnp.einsum(f"{axes}->{result}", out.reshape([sizes[axis] for axis in axes]))


def transpose_in_memory(x):
    """Transpose [N, S, R] to [N, R, S] before the product. As a part of it, XLA would choose a slow form of product.

    Working in blocks prevents XLA from only changing the layout of the result. A call that is not inlined prevents it
    from moving numbers one by one while it computes x.
    """
    with set_xla_metadata(inlineable="false"):
        return transpose_blocks(x)


@jax.jit
def transpose_blocks(x):
    N, S, R = x.shape
    s, r = math.gcd(S, BLOCK), math.gcd(R, BLOCK)
    blocks = jax.lax.optimization_barrier(x.reshape(N, S // s, s, R // r, r))
    return jax.lax.optimization_barrier(blocks.transpose(0, 3, 4, 1, 2)).reshape(N, R, S)


@jax.custom_vjp
def add_bias(x, bias):
    """Return x [..., *D] + bias [*D]."""
    return x + bias.astype(x.dtype)


def add_bias_backward(bias, gradient):
    rows = gradient.reshape(-1, math.prod(bias.shape))
    return gradient, rows.astype(jnp.float32).sum(0).reshape(bias.shape).astype(bias.dtype)


add_bias.defvjp(lambda x, bias: (add_bias(x, bias), bias), add_bias_backward)
