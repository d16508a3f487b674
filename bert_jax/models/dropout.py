"""Dropout whose draws belong to the rows of a batch.

`rows [B]` says where each row stands in the whole batch of a step. A row then drops the same numbers on whichever
device and in whichever microbatch it is computed, so a run goes on alike on another mesh.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from bert_jax.models.elementwise import KEPT
from bert_jax.models.mesh import SHARD_ROWS


def drop(x, rate: float, key, rows=None):
    """Dropout of x [B, ...]; draws follow `rows [B]` if given."""
    survives = checkpoint_name(keep_mask(key, 1 - rate, x.shape, rows), KEPT)
    return jnp.where(survives, x * (1 / (1 - rate)), 0)


def keep_mask(key, share: float, shape, rows):
    if rows is None:
        return draw(key, share, shape)
    return draw_by_row(lambda key: draw(key, share, shape[1:]), key, rows)


def draw_by_row(draw_one, key, rows):
    """`draw_one` with a key for each row: [B, ...]."""

    def draw_all(key, rows):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
        return jax.vmap(draw_one)(keys)

    if not jax.sharding.get_abstract_mesh().empty:
        # Each device draws for its own rows alone; with the hardware's generator the compiler would let all draw all.
        specs = (PartitionSpec(), SHARD_ROWS)
        draw_all = jax.shard_map(draw_all, in_specs=specs, out_specs=SHARD_ROWS, check_vma=False)
    return draw_all(key, rows)


def draw(key, share: float, shape):
    """True with probability `share`, to 16 bits: two draws from each 32-bit number, to save the generator time."""
    *outer, last = shape
    bits = jax.random.bits(key, (*outer, -(-last // 2)), jnp.uint32)
    halves = jnp.concatenate([bits & 0xFFFF, bits >> 16], axis=-1)[..., :last]
    return halves < round(share * 2**16)


class Dropout(nn.Module):
    rate: float

    @nn.compact
    def __call__(self, x, rows, train: bool):
        if not train or not self.rate:
            return x
        return drop(x, self.rate, self.make_rng("dropout"), rows)
