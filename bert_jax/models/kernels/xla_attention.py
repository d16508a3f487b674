"""Attention as the definition has it: all scores of a row at a time, in operations that XLA fuses."""

import jax.numpy as jnp

from bert_jax.models import relative_terms
from bert_jax.models.context import Context
from bert_jax.models.dropout import apply_dropout
from bert_jax.models.einsum import mixed_einsum
from bert_jax.models.elementwise import softmax
from bert_jax.models.kernels.request import (
    AttentionRequest,
    make_attention_mask,
    scale_of,
    split_qkv,
    zero_dead,
)


def run(qkv, context: Context, request: AttentionRequest, key):
    q, k, v = split_qkv(qkv, request.head_size)
    allow = make_attention_mask(context.attention_mask, context.segment_ids, request.window)
    scores = attention_scores(q, k, context, request.dtype)
    weights = softmax(jnp.where(allow, scores, jnp.finfo(jnp.float32).min))
    if request.dropout:
        weights = apply_dropout(weights, request.dropout, key, context.rows)
    out = mixed_einsum("bhlm,bmhk->blhk", weights, v, request.dtype, request.dtype)
    return zero_dead(out, allow).reshape(*qkv.shape[:2], -1)


def attention_scores(q, k, context: Context, dtype: str):
    """Return the float32 scores [B, H, L, L] of queries and keys [B, L, H, K]."""
    scale = scale_of(q.shape[-1], context.relative)
    scores = mixed_einsum("blhk,bmhk->bhlm", q * scale, k, dtype, "float32")
    if context.relative is None:
        return scores
    return scores + relative_terms.relative_scores(context.relative, q * scale, k, scale, dtype)
