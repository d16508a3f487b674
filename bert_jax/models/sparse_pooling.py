"""Sparse pooling (SPLADE): a weight for each entry of the vocabulary from the masked LM's logits at a text's tokens."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.models.bert import MaskedLMHead
from bert_jax.models.encoder_config import EncoderConfig

TOKENS_AT_ONCE = 1024  # whose logits are in memory: 125 MB with BERT's vocabulary
# Functions of logits that are at least 0.
ACTIVATIONS: dict[str, Callable] = {
    "relu": jnp.log1p,
    "log1p_relu": lambda logits: jnp.log1p(jnp.log1p(logits)),
}


def sparse_vectors(config: EncoderConfig, params: dict, states, mask, pooling: str, activation: str):
    """Return the vectors of texts, [B, V] or [B, P, V], from the states that the masked LM's head reads, [B, L, D], and
    the masks of their tokens, [B, L] or [B, P, L]."""
    head, words = MaskedLMHead(config, 0), params["encoder"]["embeddings"]["words"]

    def logits_of(states):
        return head.apply({"params": params["mlm"]}, states, {}, words, False)

    return pool_logits(states, mask, logits_of, pooling, activation)[..., : config.vocab_size]


def pool_logits(states, mask, logits_of: Callable, pooling: str = "max", activation: str = "relu"):
    """Pool the logits of the tokens in each mask; no token gives zeros.

    `logits_of` is called with a few tokens of each row at a time: never are all logits in memory, also not for the
    gradient, which computes them again.
    """
    rows, length, width = states.shape
    at_once = min(length, max(1, TOKENS_AT_ONCE // rows))
    padding = -length % at_once
    states = jnp.pad(states, ((0, 0), (0, padding), (0, 0))).reshape(rows, -1, at_once, width)
    mask = jnp.pad(mask, ((0, 0),) * (mask.ndim - 1) + ((0, padding),))
    mask = mask.reshape(*mask.shape[:-1], -1, at_once)
    activate, reads_max = ACTIVATIONS[activation], pooling == "max"

    @jax.checkpoint
    def read_block(pooled, block):
        states, mask = block
        weights = jax.nn.relu(logits_of(states))
        # The activation rises with the logit, so that of the maximum is the maximum.
        weights = weights if reads_max else activate(weights)
        weights = jnp.expand_dims(weights, range(1, mask.ndim - 1))
        weights = jnp.where(mask[..., None] > 0, weights, 0)
        return (jnp.maximum(pooled, weights.max(-2)) if reads_max else pooled + weights.sum(-2)), None

    blocks = jnp.moveaxis(states, 1, 0), jnp.moveaxis(mask, -2, 0)
    entries = jax.eval_shape(logits_of, blocks[0][0]).shape[-1]
    pooled, _ = jax.lax.scan(read_block, jnp.zeros((*mask.shape[:-2], entries)), blocks)
    return activate(pooled) if reads_max else pooled
