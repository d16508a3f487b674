"""One vector for each row out of its hidden states."""

import jax.numpy as jnp


def mean(hidden, weight):
    return (hidden * weight).sum(1) / jnp.maximum(weight.sum(1), 1)


def mean_sqrt_length(hidden, weight):
    return (hidden * weight).sum(1) / jnp.sqrt(jnp.maximum(weight.sum(1), 1))


def max_pool(hidden, weight):
    return jnp.where(weight > 0, hidden, jnp.finfo(hidden.dtype).min).max(1)


def cls(hidden, weight):
    return hidden[:, 0]


POOLINGS = {"mean": mean, "cls": cls, "max": max_pool, "mean_sqrt_len": mean_sqrt_length}


def pool(hidden, mask, how: str = "mean", normalize: bool = True):
    """Hidden states [B, L, D] -> a vector for each row [B, D], from its real tokens; of length 1 if `normalize`."""
    hidden = hidden.astype(jnp.float32)
    vector = POOLINGS[how](hidden, mask[..., None].astype(jnp.float32))
    if not normalize:
        return vector
    return vector / jnp.maximum(jnp.linalg.norm(vector, axis=-1, keepdims=True), 1e-12)
