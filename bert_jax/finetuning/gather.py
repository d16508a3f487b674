"""Examples of several pieces, such as a query and its documents; the pieces can be in any rows of a batch."""

import jax.numpy as jnp

from bert_jax.data.examples.row_packing import PLACE


def gather_by_example(values, batch: dict, pieces: int):
    """Gather values of pieces by example: [B, ...] or [B, P, ...], as in the rows -> [N, pieces, ...].

    If the weight is 0, there is no piece, and the result has zeros. Examples come in the order of the batch.
    """
    label_weights = batch["label_weights"]
    values = values.reshape(-1, *values.shape[label_weights.ndim :])
    count = -(-len(values) // pieces) * pieces
    # Indices beyond the end are dropped. They differ from each other, too, as `unique_indices` requires.
    beyond = count + jnp.arange(len(values))
    place = jnp.where(label_weights.reshape(-1) > 0, batch[PLACE].reshape(-1), beyond)
    by_place = jnp.zeros((count, *values.shape[1:]), values.dtype)
    by_place = by_place.at[place].set(values, mode="drop", unique_indices=True)
    return by_place.reshape(-1, pieces, *values.shape[1:])
