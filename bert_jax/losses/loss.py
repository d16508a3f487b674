"""Losses as (sum, weight) pairs, to add up over batches, hosts or microbatches, and to divide once, at the end.

All losses are computed in float32, whatever the type of the model's activations.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Loss(NamedTuple):
    total: jax.Array
    weight: jax.Array

    @property
    def mean(self):
        """The weighted mean; 0 if the total weight is 0."""
        return self.total / jnp.maximum(self.weight, jnp.finfo(jnp.float32).tiny)


def cross_entropy(logits, labels, weight, smoothing: float = 0.0) -> Loss:
    """Compare logits [..., C] with class numbers [...]. `smoothing` is the share of a label spread over all classes."""
    logits = logits.astype(jnp.float32)
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    # A label with weight 0 is padding and may be any number.
    picked = jnp.take_along_axis(logits, jnp.where(weight > 0, labels, 0)[..., None], axis=-1)[..., 0]
    losses = normalizer - (1 - smoothing) * picked
    if smoothing:
        losses -= smoothing * logits.mean(-1)
    return weighted_loss(losses, weight)


def binary_cross_entropy(logits, labels, weight) -> Loss:
    """Compare logits [..., C] with 0 or 1 for each of C labels. An example's loss is the mean over its labels."""
    logits = logits.astype(jnp.float32)
    losses = jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits)))
    return weighted_loss(losses.mean(-1), weight)


def pair_error(vectors, labels, weight) -> Loss:
    """Compare the cosine of every two vectors [..., D] with 1 if their class numbers [...] are equal, else with 0.

    The squared error is averaged over the pairs of equal classes, and over the pairs of different classes; the loss is
    the mean of both averages. Vectors with weight 0 are padding."""
    vectors = vectors.astype(jnp.float32).reshape(-1, vectors.shape[-1])
    labels, known = labels.reshape(-1), weight.reshape(-1) > 0
    # Not jnp.linalg.norm: its slope at a vector of zeros is not finite.
    vectors *= jax.lax.rsqrt((vectors**2).sum(-1, keepdims=True) + 1e-12)
    pairs = known[:, None] & known & ~jnp.eye(len(known), dtype=bool)
    same = labels[:, None] == labels
    errors = (vectors @ vectors.T - same) ** 2
    means = [weighted_loss(errors, pairs & sort).mean for sort in (same, ~same)]
    return Loss(sum(means) / 2, jnp.float32(1))


def squared_error(predictions, labels, weight) -> Loss:
    """Compare predictions [...] with numbers [...]."""
    return weighted_loss((predictions.astype(jnp.float32) - labels) ** 2, weight)


def span_cross_entropy(logits, starts, ends, weight, attention_mask=None) -> Loss:
    """Compare answer logits [B, L, 2] with start and end positions [B]; return the mean of both losses.

    Positions at which `attention_mask` [B, L] is 0 cannot be part of an answer."""
    logits = logits.astype(jnp.float32)
    if attention_mask is not None:
        logits = jnp.where(attention_mask[..., None] > 0, logits, jnp.finfo(jnp.float32).min)
    start = cross_entropy(logits[..., 0], starts, weight)
    end = cross_entropy(logits[..., 1], ends, weight)
    return Loss((start.total + end.total) / 2, start.weight)


def kl_divergence(log_probs, wanted_log_probs):
    """The KL divergence of probabilities from the wanted ones, [..., C] -> [...]."""
    return (jnp.exp(wanted_log_probs) * (wanted_log_probs - log_probs)).sum(-1)


def weighted_loss(losses, weight) -> Loss:
    weight = weight.astype(jnp.float32)
    # where() as well as the product: 0 x inf is NaN, and a padding example must not influence the loss.
    return Loss(jnp.where(weight > 0, losses * weight, 0).sum(), weight.sum())
