"""Dropout whose draws belong to the rows of a batch.

`rows [B]` says where each row stands in the whole batch of a step. A row then drops the same numbers on whichever
device and in whichever microbatch it is computed, so a run goes on alike on another mesh.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp


def drop(x, rate: float, key, rows=None):
    """x [B, ...] with a share `rate` of its numbers zero and the others scaled up; draws follow `rows` if given."""
    return jnp.where(kept(key, 1 - rate, x.shape, rows), x / (1 - rate), 0)


def kept(key, share: float, shape, rows):
    if rows is None:
        return jax.random.bernoulli(key, share, shape)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
    return jax.vmap(lambda key: jax.random.bernoulli(key, share, shape[1:]))(keys)


class Dropout(nn.Module):
    rate: float

    @nn.compact
    def __call__(self, x, rows, train: bool):
        if not train or not self.rate:
            return x
        return drop(x, self.rate, self.make_rng("dropout"), rows)
