"""Parameters of which each data shard updates a part. The model reads them whole; a gradient covers a shard's part.

The backward rule contains the sum over `data`, so gradients are sent as soon as they are computed: those of a layer
within the scan over layers, while the layers below it are still to come. The whole gradient of all layers is never
stored.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.mesh import DATA, platform


@dataclass(frozen=True)
class Sending:
    """How gradients are sent between data shards."""

    dtype: str
    in_ring: bool = False


@flax.struct.dataclass
class DataSharded:
    """The stand-in for a parameter [..., D, ...] in a program that is mapped over `data`."""

    full: Any
    shard: Any  # [..., D / shards, ...]; its values are not read
    # The axis that is split, counted from the last (-1), because a scan removes the first axis; 0: none.
    axis: int = flax.struct.field(pytree_node=False)
    sending: Sending = flax.struct.field(pytree_node=False)


def to_arrays(params):
    """Return the parameters as arrays."""

    def array(leaf):
        return to_array(leaf.axis, leaf.sending, leaf.full, leaf.shard) if is_data_sharded(leaf) else leaf

    return jax.tree.map(array, params, is_leaf=is_data_sharded)


def is_data_sharded(leaf) -> bool:
    return isinstance(leaf, DataSharded)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def to_array(axis: int, sending: Sending, full, shard):
    return full.astype(shard.dtype)


def backward(axis: int, sending: Sending, full, gradient):
    return jnp.zeros_like(full), reduce_over_data(gradient, axis, sending)


to_array.defvjp(lambda axis, sending, whole, part: (to_array(axis, sending, whole, part), whole), backward)


def reduce_over_data(gradient, axis: int, sending: Sending):
    """Return the gradient summed over all data shards, or this shard's part of it; `axis` is as in `DataSharded`."""

    def rounded(values):
        if platform() == "cpu" and sending.dtype == "bfloat16":
            # XLA for CPUs sums in float32 anyway, and with bfloat16 it crashes while compiling some programs.
            return jax.lax.reduce_precision(values, exponent_bits=8, mantissa_bits=7)
        return values.astype(sending.dtype)

    sent = rounded(gradient)
    if not axis:
        summed = jax.lax.psum(sent, DATA)
    elif sending.in_ring:
        summed = sum_parts(sent, gradient.ndim + axis, rounded)
    else:
        summed = jax.lax.psum_scatter(sent, DATA, scatter_dimension=gradient.ndim + axis, tiled=True)
    return summed.astype(gradient.dtype)


def sum_parts(values, axis: int, rounded: Callable):
    """Return this shard's part, along `axis`, of the sum of `values` over the data shards, which form a ring.

    The sum of a part begins at the neighbour of its owner and visits all shards; each adds its own values. One half of
    a part goes one way round, the other half the other way, so that both links of a shard are in use. A shard sends
    half as much as for the sums of all parts. `rounded` makes of a sum what is sent to the next shard.
    """
    shards, here = jax.lax.axis_size(DATA), jax.lax.axis_index(DATA)
    size = values.shape[axis] // shards
    part_shape = [*values.shape[:axis], size, *values.shape[axis + 1 :]]
    even = [axis] if size % 2 == 0 else [i for i, length in enumerate(part_shape) if length % 2 == 0]
    directions = (1, -1) if even else (1,)

    def owned_chunk(owner, number: int):
        part = jax.lax.dynamic_slice_in_dim(values, (owner % shards) * size, size, axis)
        return jnp.split(part, len(directions), even[0] if even else axis)[number]

    sums = []
    for number, direction in enumerate(directions):
        to_next = [(i, (i + direction) % shards) for i in range(shards)]
        part_sum = owned_chunk(here - direction, number)
        for step in range(2, shards + 1):
            part_sum = jax.lax.ppermute(rounded(part_sum), DATA, to_next).astype(values.dtype)
            part_sum += owned_chunk(here - step * direction, number)
        sums.append(part_sum)
    return jnp.concatenate(sums, even[0] if even else axis)
