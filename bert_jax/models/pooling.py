"""Pooling: one vector for each text from the hidden states of its tokens."""

import jax
import jax.numpy as jnp

from bert_jax.models.pooling_weights import POOLING_WEIGHTS

HIGHEST = jax.lax.Precision.HIGHEST  # so that vectors of float32 states have float32 precision


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
