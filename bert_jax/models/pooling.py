"""Pooling: one vector for each text from the hidden states of its tokens."""

import jax
import jax.numpy as jnp

HIGHEST = jax.lax.Precision.HIGHEST  # so that vectors of float32 states have float32 precision


def mean(real):
    return real / jnp.maximum(count(real), 1)


def mean_sqrt_length(real):
    return real / jnp.sqrt(jnp.maximum(count(real), 1))


def cls(real):
    return real * (position(real) == 1)


def last(real):
    return real * (position(real) == count(real))


def weighted_mean(real):
    """Weigh each token by its position in the text, from 1."""
    weight = real * position(real)
    return weight / jnp.maximum(count(weight), 1)


def position(real):
    return jnp.cumsum(real, -1)


def count(real):
    return real.sum(-1, keepdims=True)


# Functions from the mask of a text's real tokens [..., L] to the weight of each token's state in the vector.
WEIGHTS = {
    "mean": mean,
    "cls": cls,
    "mean_sqrt_len": mean_sqrt_length,
    "weighted_mean": weighted_mean,
    "last": last,
}
POOLINGS = (*WEIGHTS, "max")
ACTIVATIONS = {"none": lambda vectors: vectors, "tanh": jnp.tanh}  # for `project`


def pool(hidden, attention_mask, how: str = "mean", normalize: bool = True):
    """Pool the real tokens of hidden states [B, L, D] to one vector per row [B, D], of length 1 if `normalize`."""
    hidden, real = hidden.astype(jnp.float32), attention_mask.astype(jnp.float32)
    if how == "max":
        vector = jnp.where(attention_mask[..., None] > 0, hidden, jnp.finfo(jnp.float32).min).max(1)
    else:
        vector = jnp.einsum("bl,bld->bd", WEIGHTS[how](real), hidden, precision=HIGHEST)
    return unit(vector) if normalize else vector


def pool_texts(hidden, batch: dict, how: str):
    """Pool hidden states [B, L, D] to one vector per text [B, P, D]; rows may be packed. "max" is not supported."""
    real = batch["attention_mask"][:, None]
    if "segment_ids" in batch:
        texts = 1 + jnp.arange(batch["cls_positions"].shape[1])
        real = real * (batch["segment_ids"][:, None] == texts[:, None])
    weights = WEIGHTS[how](real.astype(jnp.float32))
    return jnp.einsum("bpl,bld->bpd", weights, hidden.astype(jnp.float32), precision=HIGHEST)


def project(vectors, layer: dict, activation: str):
    """Apply a dense layer [D, E] and an activation to vectors [..., D]."""
    vectors = jnp.matmul(vectors, layer["kernel"].astype(jnp.float32), precision=HIGHEST)
    return ACTIVATIONS[activation](vectors + layer.get("bias", 0.0))


def unit(vectors):
    """Scale vectors to length 1; zero vectors stay zero. Unlike a norm, it has finite gradients at zero."""
    return vectors * jax.lax.rsqrt(jnp.maximum(jnp.square(vectors).sum(-1, keepdims=True), 1e-24))
