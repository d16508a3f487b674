"""Distillation losses: (sum, weight) pairs that compare what a student and its teacher compute for the same tokens.

The arrays of both are states [..., D] or logits [..., C]. Only the student's have gradients.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from bert_jax.losses.loss import Loss, weigh
from bert_jax.models.kernels.attention import allowed

SMALL = 1e-12


def soft_cross_entropy(logits, taught, weight, temperature: float = 1.0) -> Loss:
    """The KL divergence of the student's probabilities from the teacher's [..., C], both computed at the temperature.

    It is multiplied by the squared temperature, so that gradients are about as large at any temperature."""
    ours, theirs = (
        jax.nn.log_softmax(values.astype(jnp.float32) / temperature) for values in (logits, taught)
    )
    return weigh(temperature**2 * (jnp.exp(theirs) * (theirs - ours)).sum(-1), weight)


def soft_binary_cross_entropy(logits, taught, weight, temperature: float = 1.0) -> Loss:
    """Do the same for C independent labels [..., C], present or not. An example's loss is the mean over its labels."""
    ours, theirs = (jnp.stack([values, jnp.zeros_like(values)], -1) for values in (logits, taught))
    every = soft_cross_entropy(ours, theirs, jnp.broadcast_to(weight[..., None], logits.shape), temperature)
    return Loss(every.total / logits.shape[-1], weight.astype(jnp.float32).sum())


def cosine_distance(states, taught, weight) -> Loss:
    """1 minus the cosine of each state [..., D] with the teacher's."""
    ours, theirs = states.astype(jnp.float32), taught.astype(jnp.float32)
    squares = ((ours**2).sum(-1) + SMALL) * ((theirs**2).sum(-1) + SMALL)
    return weigh(1 - (ours * theirs).sum(-1) * jax.lax.rsqrt(squares), weight)


def relation_divergence(states, taught, batch: dict, heads: int) -> Loss:
    """The KL divergence of each token's relations from the teacher's, averaged over heads.

    The states [B, L, D] are split into `heads`. A token's relations are the softmax of its scaled dot products with the
    tokens that it may attend to. Teacher and student may have different widths.
    """
    seen = allowed(batch["attention_mask"], batch.get("segment_ids"), None)

    # Relations are many times as large as states, so the backward pass computes them again instead of keeping them.
    @jax.checkpoint
    def divergence(states, taught):
        ours, theirs = (jnp.where(seen, log_relations(x, heads, seen), 0) for x in (states, taught))
        return (jnp.where(seen, jnp.exp(theirs), 0) * (theirs - ours)).sum(-1).mean(1)

    return weigh(divergence(states, taught), batch["attention_mask"])


def log_relations(states, heads: int, seen):
    B, L, D = states.shape
    split = states.reshape(B, L, heads, D // heads)
    products = jnp.einsum("blhk,bmhk->bhlm", split, split, preferred_element_type=jnp.float32)
    return jax.nn.log_softmax(jnp.where(seen, products * (D // heads) ** -0.5, jnp.finfo(jnp.float32).min))


def mean_squares(states: Sequence, taught: Sequence, weight) -> Loss:
    """The mean squared error of the student's arrays [B, ..., N] against the teacher's, summed over layers.

    `weight` [B, ...] is that of each row of N."""
    errors = [
        ((ours.astype(jnp.float32) - theirs.astype(jnp.float32)) ** 2).mean(-1)
        for ours, theirs in zip(states, taught, strict=True)
    ]
    return weigh(sum(errors), weight)
