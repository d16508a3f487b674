"""Examples that are several pieces, such as a query and its documents, whose pieces stand in any rows of a batch."""

import jax.numpy as jnp

from bert_jax.data.examples.arrange import PLACE


def by_example(values, batch: dict, pieces: int):
    """Values of pieces as they stand in the rows, [B, ...] or [B, P, ...] -> [N, pieces, ...], in the batch's order.

    Where the weight is 0, there is no piece, and the result has zeros.
    """
    weight = batch["weight"]
    values = values.reshape(-1, *values.shape[weight.ndim :])
    count = -(-len(values) // pieces) * pieces
    # Places beyond the end are dropped. They differ, too, as `unique_indices` promises.
    beyond = count + jnp.arange(len(values))
    place = jnp.where(weight.reshape(-1) > 0, batch[PLACE].reshape(-1), beyond)
    by_place = jnp.zeros((count, *values.shape[1:]), values.dtype)
    by_place = by_place.at[place].set(values, mode="drop", unique_indices=True)
    return by_place.reshape(-1, pieces, *values.shape[1:])
