"""Pooling: one vector for each text from the hidden states of its tokens."""

import jax
import jax.numpy as jnp

HIGHEST = jax.lax.Precision.HIGHEST  # so that vectors of float32 states have float32 precision


def mean_weights(real):
    return real / jnp.maximum(count_tokens(real), 1)


def mean_sqrt_length_weights(real):
    return real / jnp.sqrt(jnp.maximum(count_tokens(real), 1))


def cls_weights(real):
    return real * (positions_from_one(real) == 1)


def last_token_weights(real):
    return real * (positions_from_one(real) == count_tokens(real))


def weighted_mean_weights(real):
    """Weigh each token by its position in the text, from 1."""
    weight = real * positions_from_one(real)
    return weight / jnp.maximum(count_tokens(weight), 1)


def positions_from_one(real):
    return jnp.cumsum(real, -1)


def count_tokens(real):
    return real.sum(-1, keepdims=True)


# Functions from the mask of a text's real tokens [..., L] to the weight of each token's state in the vector.
POOLING_WEIGHTS = {
    "mean": mean_weights,
    "cls": cls_weights,
    "mean_sqrt_len": mean_sqrt_length_weights,
    "weighted_mean": weighted_mean_weights,
    "last": last_token_weights,
}
POOLINGS = (*POOLING_WEIGHTS, "max")
ACTIVATIONS = {"none": lambda vectors: vectors, "tanh": jnp.tanh}  # for `project`


def pool(hidden, attention_mask, how: str = "mean", normalize: bool = True):
    """Pool the real tokens of hidden states [B, L, D] to one vector per row [B, D], of length 1 if `normalize`."""
    hidden, real = hidden.astype(jnp.float32), attention_mask.astype(jnp.float32)
    if how == "max":
        vector = jnp.where(attention_mask[..., None] > 0, hidden, jnp.finfo(jnp.float32).min).max(1)
    else:
        vector = jnp.einsum("bl,bld->bd", POOLING_WEIGHTS[how](real), hidden, precision=HIGHEST)
    return l2_normalize(vector) if normalize else vector


def pool_texts(hidden, batch: dict, how: str, precision=HIGHEST):
    """Pool hidden states [B, L, D] to one vector per text [B, P, D]; rows may be packed. "max" is not supported."""
    real = batch["attention_mask"][:, None]
    if "segment_ids" in batch:
        texts = 1 + jnp.arange(batch["cls_positions"].shape[1])
        real = real * (batch["segment_ids"][:, None] == texts[:, None])
    weights = POOLING_WEIGHTS[how](real.astype(jnp.float32))
    return jnp.einsum("bpl,bld->bpd", weights, hidden.astype(jnp.float32), precision=precision)


def project(vectors, layer: dict, activation: str):
    """Apply a dense layer [D, E] and an activation to vectors [..., D]."""
    vectors = jnp.matmul(vectors, layer["kernel"].astype(jnp.float32), precision=HIGHEST)
    return ACTIVATIONS[activation](vectors + layer.get("bias", 0.0))


def l2_normalize(vectors):
    """Scale vectors to length 1; zero vectors stay zero. Unlike a norm, it has finite gradients at zero."""
    return vectors * jax.lax.rsqrt(jnp.maximum(jnp.square(vectors).sum(-1, keepdims=True), 1e-24))
