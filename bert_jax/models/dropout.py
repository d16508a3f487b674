"""Dropout whose random numbers depend on the rows of a batch.

`rows [B]` is the index of each row in the whole batch of a step. A row drops the same numbers on any device and in any
microbatch, so a run continues the same on another mesh.

Whether a number survives is a hash of the key and the number's position. The compiler computes the hash where it is
used, in the forward pass and again in the backward pass, and stores nothing. A random number generator would take
longer than attention.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from bert_jax.models.elementwise import SAVED
from bert_jax.models.mesh import SHARD_ROWS


def apply_dropout(x, rate: float, key, rows=None):
    """Apply dropout to x [B, ...]. Draws depend on `rows [B]` if given."""
    survives = draw_keep_mask(key, 1 - rate, x.shape, rows)
    if not is_hashed(key):
        survives = checkpoint_name(survives, SAVED)
    return jnp.where(survives, x * (1 / (1 - rate)), 0)


def draw_keep_mask(key, share: float, shape, rows):
    if rows is None:
        return draw_bernoulli(key, share, shape)
    return draw_by_row(lambda key: draw_bernoulli(key, share, shape[1:]), key, rows)


def draw_by_row(draw_one, key, rows):
    """Call `draw_one` with a key for each row, and stack the results: [B, ...]."""

    def draw_all(key, rows):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
        return jax.vmap(draw_one)(keys)

    if not jax.sharding.get_abstract_mesh().empty:
        # Each device draws only for its own rows. Otherwise, with the hardware's generator, each would draw for all.
        specs = (PartitionSpec(), SHARD_ROWS)
        draw_all = jax.shard_map(draw_all, in_specs=specs, out_specs=SHARD_ROWS, check_vma=False)
    return draw_all(key, rows)


def draw_bernoulli(key, share: float, shape):
    """Return an array of bool, True with probability `share`."""
    if is_hashed(key):
        limit = jnp.uint32(min(round(share * 2**32), 2**32 - 1))
        seeds = jax.random.bits(key, (2,), jnp.uint32)
        positions = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
        return mix_bits(mix_bits(positions ^ seeds[0]) + seeds[1]) < limit
    # 16 bits are enough: two draws from each 32-bit number save half of the generator's time.
    *outer, last = shape
    bits = jax.random.bits(key, (*outer, -(-last // 2)), jnp.uint32)
    halves = jnp.concatenate([bits & 0xFFFF, bits >> 16], axis=-1)[..., :last]
    return halves < round(share * 2**16)


def is_hashed(key) -> bool:
    """Return whether draws are hashes, not numbers from the hardware's generator."""
    return jax.random.key_impl(key) == "threefry2x32"


def mix_bits(x):
    """Hash 32 bits to 32 bits by invertible steps: multiplications by odd numbers, and shifts."""
    for factor, shift in ((0x9E3779B1, 16), (0x7FEB352D, 15), (0x846CA68B, 16)):
        x = x * jnp.uint32(factor)
        x = x ^ (x >> shift)
    return x


class Dropout(nn.Module):
    rate: float

    @nn.compact
    def __call__(self, x, rows, train: bool):
        if not train or not self.rate:
            return x
        return apply_dropout(x, self.rate, self.make_rng("dropout"), rows)
