"""Examples of several pieces, such as a query's documents: the pieces may stand in any rows of a batch."""

import jax.numpy as jnp

from bert_jax.data.examples.arrange import PLACE


def assembled(values, batch: dict, pieces: int):
    """`values` of the pieces in the rows, [B, ...] or [B, P, ...], by example: [N, pieces, ...].

    A piece has a weight above 0; zeros stand where there is none.
    """
    weight = batch["weight"]
    values = values.reshape(-1, *values.shape[weight.ndim :])
    here = jnp.arange(len(values))
    count = -(-len(values) // pieces) * pieces
    # Places that are dropped differ, too, so that all may be written at once.
    place = jnp.where(weight.reshape(-1) > 0, batch[PLACE].reshape(-1), count + here)
    by_place = jnp.zeros((count, *values.shape[1:]), values.dtype)
    by_place = by_place.at[place].set(values, mode="drop", unique_indices=True)
    return by_place.reshape(-1, pieces, *values.shape[1:])
