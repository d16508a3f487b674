"""What the layers of an encoder compute on the way, for those who ask: their states and their attention's weights.

A program asks by making the collection mutable. Layers must be unrolled, for a scan keeps nothing of its steps; of
scanned ones `Encoder.layerwise` gives some.
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

# Collections of variables: states, weights of attention, and what these are made of.
STATES, WEIGHTS, QKV, SCORES = "states", "weights", "qkv", "scores"


def asked(module: nn.Module, collection: str) -> bool:
    """Whether a module should keep something there, with `sow`."""
    return module.is_mutable_collection(collection) and not module.is_initializing()


def weights_of(attend: Callable, qkv, heads: int):
    """The weights [B, H, L, L] of `attend`, a function of qkv [B, L, 3, H x K]: what it gives for values that are the
    rows of the unit matrix. So they are those of any attention, whatever it adds to scores and whichever it leaves out.
    """
    B, L, _, width = qkv.shape
    size = width // heads
    parts = []
    for first in range(0, L, size):  # values have room for so many columns of the matrix
        unit = jnp.tile(jnp.eye(L, size, -first, dtype=qkv.dtype), heads)
        values = jnp.broadcast_to(unit[None, :, None], (B, L, 1, width))
        out = attend(jnp.concatenate([qkv[:, :, :2], values], axis=2))
        parts.append(out.reshape(B, L, heads, size))
    return jnp.concatenate(parts, axis=-1)[..., :L].transpose(0, 2, 1, 3)
