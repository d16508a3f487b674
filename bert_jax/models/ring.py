"""Sums over the data shards, of which each shard needs a part: they go around a ring of the shards.

The sum of a part begins at the neighbour of its owner and visits all shards; each adds its own values. One half of a
part goes one way round, the other half the other way, so that both links of a shard are in use. A shard sends half as
much as for the sums of all parts.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.models.mesh import DATA


def sum_parts(values, axis: int, rounded: Callable):
    """Return this shard's part, along `axis`, of the sum of `values` over the data shards.

    `rounded` makes of a sum what is sent to the next shard.
    """
    shards, here = jax.lax.axis_size(DATA), jax.lax.axis_index(DATA)
    size = values.shape[axis] // shards
    part_shape = [*values.shape[:axis], size, *values.shape[axis + 1 :]]
    even = [axis] if size % 2 == 0 else [i for i, length in enumerate(part_shape) if length % 2 == 0]
    directions = (1, -1) if even else (1,)

    def own_values(owner, number: int):
        part = jax.lax.dynamic_slice_in_dim(values, (owner % shards) * size, size, axis)
        return jnp.split(part, len(directions), even[0] if even else axis)[number]

    sums = []
    for number, direction in enumerate(directions):
        to_next = [(i, (i + direction) % shards) for i in range(shards)]
        part_sum = own_values(here - direction, number)
        for step in range(2, shards + 1):
            part_sum = jax.lax.ppermute(rounded(part_sum), DATA, to_next).astype(values.dtype)
            part_sum += own_values(here - step * direction, number)
        sums.append(part_sum)
    return jnp.concatenate(sums, even[0] if even else axis)
