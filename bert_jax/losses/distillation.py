"""Distillation losses: (sum, weight) pairs that compare what a student and its teacher compute for the same tokens.

The arrays of both are states [..., D] or logits [..., C]. Only the student's have gradients.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from bert_jax.losses.loss import Loss, kl_divergence, weighted_loss
from bert_jax.models.kernels.request import make_attention_mask

SMALL = 1e-12


def soft_cross_entropy(logits, teacher_logits, weight, temperature: float = 1.0) -> Loss:
    """The KL divergence of the student's probabilities from the teacher's [..., C], both computed at the temperature.

    It is multiplied by the squared temperature, so that gradients are about as large at any temperature."""
    student_log_probs = jax.nn.log_softmax(logits.astype(jnp.float32) / temperature)
    teacher_log_probs = jax.nn.log_softmax(teacher_logits.astype(jnp.float32) / temperature)
    return weighted_loss(temperature**2 * kl_divergence(student_log_probs, teacher_log_probs), weight)


def soft_binary_cross_entropy(logits, teacher_logits, weight, temperature: float = 1.0) -> Loss:
    """Do the same for C independent labels [..., C], present or not. An example's loss is the mean over its labels."""
    student_pairs = jnp.stack([logits, jnp.zeros_like(logits)], -1)
    teacher_pairs = jnp.stack([teacher_logits, jnp.zeros_like(teacher_logits)], -1)
    weights = jnp.broadcast_to(weight[..., None], logits.shape)
    every = soft_cross_entropy(student_pairs, teacher_pairs, weights, temperature)
    return Loss(every.total / logits.shape[-1], weight.astype(jnp.float32).sum())


def cosine_distance(states, teacher_states, weight) -> Loss:
    """1 minus the cosine of each state [..., D] with the teacher's."""
    student, teacher = states.astype(jnp.float32), teacher_states.astype(jnp.float32)
    squares = ((student**2).sum(-1) + SMALL) * ((teacher**2).sum(-1) + SMALL)
    return weighted_loss(1 - (student * teacher).sum(-1) * jax.lax.rsqrt(squares), weight)


def relation_divergence(states, teacher_states, batch: dict, heads: int) -> Loss:
    """The KL divergence of each token's relations from the teacher's, averaged over heads.

    The states [B, L, D] are split into `heads`. A token's relations are the softmax of its scaled dot products with the
    tokens that it may attend to. Teacher and student may have different widths.
    """
    seen = make_attention_mask(batch["attention_mask"], batch.get("segment_ids"), None)

    # Relations are many times as large as states, so the backward pass computes them again instead of keeping them.
    @jax.checkpoint
    def divergence(states, teacher_states):
        student_relations, teacher_relations = (
            jnp.where(seen, log_relations(x, heads, seen), 0) for x in (states, teacher_states)
        )
        wanted = jnp.where(seen, jnp.exp(teacher_relations), 0)
        return (wanted * (teacher_relations - student_relations)).sum(-1).mean(1)

    return weighted_loss(divergence(states, teacher_states), batch["attention_mask"])


def log_relations(states, heads: int, seen):
    B, L, D = states.shape
    split = states.reshape(B, L, heads, D // heads)
    products = jnp.einsum("blhk,bmhk->bhlm", split, split, preferred_element_type=jnp.float32)
    return jax.nn.log_softmax(jnp.where(seen, products * (D // heads) ** -0.5, jnp.finfo(jnp.float32).min))


def mean_squares(states: Sequence, teacher_states: Sequence, weight) -> Loss:
    """The mean squared error of the student's arrays [B, ..., N] against the teacher's, summed over layers.

    `weight` [B, ...] is that of each row of N."""
    errors = [
        ((ours.astype(jnp.float32) - theirs.astype(jnp.float32)) ** 2).mean(-1)
        for ours, theirs in zip(states, teacher_states, strict=True)
    ]
    return weighted_loss(sum(errors), weight)
