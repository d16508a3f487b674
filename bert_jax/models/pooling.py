"""Pooling: one vector for each text from the hidden states of its tokens."""

import jax
import jax.numpy as jnp

from bert_jax.data.examples.row_packing import window_starts
from bert_jax.models.pooling_weights import POOLING_WEIGHTS

HIGHEST = jax.lax.Precision.HIGHEST  # so that vectors of float32 states have float32 precision


ACTIVATIONS = {"none": lambda vectors: vectors, "tanh": jnp.tanh}  # for `project`


def pool(hidden, mask, how: str = "mean", normalize: bool = True, precision=HIGHEST):
    """Pool hidden states [B, L, D] to a vector for each mask of tokens: [B, D] for [B, L], [B, P, D] for [B, P, L].
    Vectors have length 1 if `normalize`; those of no token are zeros."""
    hidden, real = hidden.astype(jnp.float32), mask.astype(jnp.float32)
    if how == "max":
        apart = jnp.expand_dims(hidden, range(1, mask.ndim - 1))
        vector = jnp.where(mask[..., None] > 0, apart, jnp.finfo(jnp.float32).min).max(-2)
        vector = jnp.where(mask.any(-1, keepdims=True), vector, 0)
    else:
        vector = jnp.einsum("b...l,bld->b...d", POOLING_WEIGHTS[how](real), hidden, precision=precision)
    return l2_normalize(vector) if normalize else vector


def text_mask(batch: dict):
    """Return the mask of real tokens [B, L], or that of each text [B, P, L] if the batch has their `lengths`."""
    if "lengths" not in batch:
        return batch["attention_mask"]
    position, start = jnp.arange(batch["input_ids"].shape[1]), window_starts(batch)[..., None]
    return ((position >= start) & (position < start + batch["lengths"][..., None])).astype(jnp.int32)


def pool_texts(hidden, batch: dict, how: str, precision=HIGHEST):
    """Pool hidden states [B, L, D] to one vector per text [B, P, D]; rows may be packed."""
    return pool(hidden, segment_mask(batch), how, False, precision)


def segment_mask(batch: dict):
    """Return the mask of each text's tokens [B, P, L]; rows may be packed."""
    real = batch["attention_mask"][:, None]
    if "segment_ids" in batch:
        texts = 1 + jnp.arange(batch["cls_positions"].shape[1])
        real = real * (batch["segment_ids"][:, None] == texts[:, None])
    return real


def project(vectors, layer: dict, activation: str):
    """Apply a dense layer [D, E] and an activation to vectors [..., D]."""
    vectors = jnp.matmul(vectors, layer["kernel"].astype(jnp.float32), precision=HIGHEST)
    return ACTIVATIONS[activation](vectors + layer.get("bias", 0.0))


def l2_normalize(vectors):
    """Scale vectors to length 1; zero vectors stay zero. Unlike a norm, it has finite gradients at zero."""
    return vectors * jax.lax.rsqrt(jnp.maximum(jnp.square(vectors).sum(-1, keepdims=True), 1e-24))
