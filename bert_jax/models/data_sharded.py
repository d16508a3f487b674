"""Parameters of which each data shard updates a part. The model reads them whole; a gradient covers a shard's part.

The backward rule contains the sum over `data`, so gradients are sent as soon as they are computed: those of a layer
within the scan over layers, while the layers below it are still to come. The whole gradient of all layers is never
stored.
"""

from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.mesh import DATA, platform


@flax.struct.dataclass
class DataSharded:
    """The stand-in for a parameter [..., D, ...] in a program that is mapped over `data`."""

    full: Any
    shard: Any  # [..., D / shards, ...]; its values are not read
    # The axis that is split, counted from the last (-1), because a scan removes the first axis; 0: none.
    axis: int = flax.struct.field(pytree_node=False)
    dtype: str = flax.struct.field(pytree_node=False)  # the type in which gradients are sent


def to_arrays(params):
    """Return the parameters as arrays."""

    def array(leaf):
        return to_array(leaf.axis, leaf.dtype, leaf.full, leaf.shard) if is_data_sharded(leaf) else leaf

    return jax.tree.map(array, params, is_leaf=is_data_sharded)


def is_data_sharded(leaf) -> bool:
    return isinstance(leaf, DataSharded)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def to_array(axis: int, dtype: str, full, shard):
    return full.astype(shard.dtype)


def backward(axis: int, dtype: str, full, gradient):
    return jnp.zeros_like(full), reduce_over_data(gradient, axis, dtype)


to_array.defvjp(lambda axis, dtype, whole, part: (to_array(axis, dtype, whole, part), whole), backward)


def reduce_over_data(gradient, axis: int, dtype: str):
    """Return the gradient summed over all data shards, or this shard's part of it; `axis` is as in `DataSharded`."""
    if platform() == "cpu" and dtype == "bfloat16":
        # XLA for CPUs sums in float32 anyway, and with bfloat16 it crashes while compiling some programs.
        sent = jax.lax.reduce_precision(gradient, exponent_bits=8, mantissa_bits=7)
    else:
        sent = gradient.astype(dtype)
    if not axis:
        summed = jax.lax.psum(sent, DATA)
    else:
        summed = jax.lax.psum_scatter(sent, DATA, scatter_dimension=gradient.ndim + axis, tiled=True)
    return summed.astype(gradient.dtype)
