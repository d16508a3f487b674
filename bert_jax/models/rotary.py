"""Rotary position embeddings: queries and keys are rotated by their position, so their product depends on distance."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.mesh import FUSED_QKV, TABLE, platform


def rotary_tables(config: EncoderConfig, length: int):
    """Return [S, 2, L, K / 2]: cosine and sine for each sort of layer (global, local), position and pair of numbers.

    Return None if the model has no rotary positions. Positions count along the row and need not restart in each
    sequence, because only distances matter.
    """
    thetas = [config.rotary.theta, config.rotary.local_theta][: 1 + bool(config.rotary.local_theta)]
    if not config.rotary.theta:
        return None
    K = config.head_size
    slowness = np.stack([theta ** (np.arange(0, K, 2) / K) for theta in thetas])
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * (1 / slowness).astype(np.float32)[:, None, :]
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)


def rotate(qkv, table):
    """Rotate the queries and keys of qkv [B, L, 3, H x K] by a table [2, L, K / 2]; values stay the same.

    Number i of a head forms a pair with number i + K / 2.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return turned(qkv, table)
    # Each device rotates its own heads. The compiler would take a roll to cross from one device to the next.
    specs = (FUSED_QKV, TABLE)
    return jax.shard_map(turned, in_specs=specs, out_specs=FUSED_QKV, check_vma=False)(qkv, table)


@jax.custom_vjp
def turned(qkv, table):
    turns = (np.arange(3) < 2)[:, None]
    cosine, sine = (part[:, None] for part in table)  # [L, 1, K / 2]
    cosine, sine = jnp.where(turns, cosine, 1), jnp.where(turns, sine, 0)
    turn = turn_side_by_side if platform() == "tpu" else turn_pairs
    return turn(qkv, cosine, sine).astype(qkv.dtype)


# The backward pass rotates the other way: a rotation's transpose is its inverse.
turned.defvjp(
    lambda qkv, table: (turned(qkv, table), table),
    lambda table, gradient: (
        turned(gradient, table * jnp.array([1, -1])[:, None, None]),
        jnp.zeros_like(table),
    ),
)


def turn_pairs(qkv, cosine, sine):
    half = cosine.shape[-1]
    pairs = qkv.reshape(*qkv.shape[:3], -1, 2, half)
    first, second = pairs[..., 0, :], pairs[..., 1, :]
    cosine, sine = cosine[:, :, None], sine[:, :, None]
    return jnp.stack([first * cosine - second * sine, second * cosine + first * sine], axis=-2).reshape(
        qkv.shape
    )


def turn_side_by_side(qkv, cosine, sine):
    """Rotate with all heads in one axis. A TPU would pad an axis of a head's 64 numbers, or half of them, to 128."""
    half, width = cosine.shape[-1], qkv.shape[-1]
    is_first = np.arange(width) // half % 2 == 0
    partner = jnp.where(is_first, jnp.roll(qkv, -half, -1), jnp.roll(qkv, half, -1))
    cosine, sine = (jnp.tile(part, width // half) for part in (cosine, sine))
    return qkv * cosine + partner * jnp.where(is_first, -sine, sine)
