"""The one product of dense layers, heads and attention: operands of the computation's dtype, sums in float32.

JAX's own backward rule would multiply a float32 cotangent by a bfloat16 operand, which is slow on every processor: here
the cotangent is rounded as the operands are. TPUs and GPUs add up in float32 by themselves. XLA for CPUs has fast
products of one form, which `matrices` brings any product to: the left operand is summed over its last axis, and the
result is float32.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from bert_jax.models.mesh import platform

BLOCK = 16  # float32 numbers of a cache line


@partial(jax.custom_vjp, nondiff_argnums=(0, 3, 4))
def product(spec: str, a, b, dtype: str, result_dtype: str):
    """An einsum of two operands rounded to `dtype`; `spec` names each axis by a letter.

    >>> product("bld,df->blf", jnp.ones((1, 2, 3)), jnp.ones((3, 4)), "bfloat16", "float32")[0, 0, 0].item()
    3.0
    """
    return einsum(spec, a.astype(dtype), b.astype(dtype), result_dtype)


def product_forward(spec, a, b, dtype, result_dtype):
    return product(spec, a, b, dtype, result_dtype), (a, b)


def product_backward(spec, dtype, result_dtype, operands, gradient):
    (left, right, result), (a, b) = split(spec), operands
    gradient = gradient.astype(dtype)
    of_a = einsum(f"{result},{right}->{left}", gradient, b.astype(dtype), a.dtype)
    of_b = einsum(f"{left},{result}->{right}", a.astype(dtype), gradient, b.dtype)
    return of_a, of_b


product.defvjp(product_forward, product_backward)


def split(spec: str) -> tuple[str, str, str]:
    operands, result = spec.split("->")
    left, right = operands.split(",")
    return left, right, result


def einsum(spec: str, a, b, result_dtype):
    if platform() == "cpu":
        return matrices(spec, a, b).astype(result_dtype)
    return jnp.einsum(spec, a, b, preferred_element_type=result_dtype)


def matrices(spec: str, a, b):
    """The einsum as products of matrices [N, R, S] x [N, S, C] or [N, C, S], in float32."""
    left, right, result = split(spec)
    batch = "".join(axis for axis in left if axis in right and axis in result)
    summed = "".join(axis for axis in left if axis in right and axis not in result)
    rows = "".join(axis for axis in left if axis not in right)
    columns = "".join(axis for axis in right if axis not in left)
    if (
        result == batch + columns + rows
    ):  # a transposed result XLA would fold into a form that it cannot compute
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
    """[N, S, R] -> [N, R, S], moved before the product: as a part of it, XLA would compute a slow form of product.

    Blocks keep XLA from giving the result another layout instead, and a call that is not inlined from moving each
    number by itself while it computes x.
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
    """x [..., *D] + bias [*D]."""
    return x + bias.astype(x.dtype)


def add_bias_forward(x, bias):
    return add_bias(x, bias), bias


def add_bias_backward(bias, gradient):
    return gradient, sum_rows(gradient, bias.ndim).astype(bias.dtype)


add_bias.defvjp(add_bias_forward, add_bias_backward)


def sum_rows(x, kept: int = 1):
    """[..., *D] -> [*D], summed in float32."""
    rows = x.reshape(-1, math.prod(x.shape[x.ndim - kept :]))
    return rows.astype(jnp.float32).sum(0).reshape(x.shape[x.ndim - kept :])
