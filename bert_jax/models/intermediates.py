"""Intermediate results of an encoder's layers: hidden states and attention weights, on request.

A program requests them by making a collection mutable. Layers must be unrolled, because a scan keeps nothing of its
steps; for scanned layers, use `Encoder.layerwise`.
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

# Flax collections: hidden states, attention weights, and the qkv and scores that the weights are computed from.
STATES, WEIGHTS, QKV, SCORES = "states", "weights", "qkv", "scores"


def is_requested(module: nn.Module, collection: str) -> bool:
    """Return whether a module should `sow` into the collection."""
    return module.is_mutable_collection(collection) and not module.is_initializing()


def recover_attention_weights(attend: Callable, qkv, heads: int):
    """Return the attention weights [B, H, L, L] of `attend`, a function of qkv [B, L, 3, H x K].

    They are its outputs if the values are the rows of the unit matrix. So this works for any attention, whatever it
    adds to scores or masks.
    """
    B, L, _, width = qkv.shape
    size = width // heads
    parts = []
    for first in range(0, L, size):  # values hold `size` columns of the matrix at a time
        unit = jnp.tile(jnp.eye(L, size, -first, dtype=qkv.dtype), heads)
        values = jnp.broadcast_to(unit[None, :, None], (B, L, 1, width))
        out = attend(jnp.concatenate([qkv[:, :, :2], values], axis=2))
        parts.append(out.reshape(B, L, heads, size))
    return jnp.concatenate(parts, axis=-1)[..., :L].transpose(0, 2, 1, 3)
