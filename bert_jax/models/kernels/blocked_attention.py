"""Attention in blocks of queries, with memory linear in the length, and with a bias for each distance if needed.

The scores of a block exist while it is computed. The backward pass computes them again.
"""

import jax
import jax.numpy as jnp

from bert_jax.models.context import Context
from bert_jax.models.dropout import draw_keep_mask
from bert_jax.models.einsum import mixed_einsum
from bert_jax.models.kernels.request import AttentionRequest, masked_segment_ids, split_qkv
from bert_jax.models.relative_terms import expand_distances

BLOCK = 256  # queries in a block
MIN_LENGTH = 1024  # in shorter rows all scores together are small


def blocked_attention(q, k, v, segment_ids, bias, dropped):
    """Map q, k, v [B, L, H, K], segment_ids [B, L] (0: padding) and a bias [H, 2L - 1] or None to [B, L, H, K];
    `dropped` is (rate, key, rows)."""
    B, L, H, K = q.shape
    count = -(-L // BLOCK)
    beyond, dtype = count * BLOCK - L, str(q.dtype)
    rate, key, rows = dropped

    def blocks(x):
        padded = jnp.pad(x, [(0, 0), (0, beyond)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(padded.reshape(B, count, BLOCK, *x.shape[2:]), 1, 0)

    # The last query of a block is the farthest from the last key; those that pad the last block are farther still.
    by_distance = None if bias is None else jnp.pad(bias, ((0, 0), (beyond, 0)))

    @jax.checkpoint
    def attend_block(number, queries, query_segments):
        scores = mixed_einsum("blhk,bmhk->bhlm", queries, k, dtype, "float32")
        if by_distance is not None:
            first = (count - 1 - number) * BLOCK
            own = jax.lax.dynamic_slice_in_dim(by_distance, first, L + BLOCK - 1, axis=1)
            scores += expand_distances(own, BLOCK)
        allow = (query_segments[:, :, None] == segment_ids[:, None]) & (segment_ids[:, None] > 0)
        # Not elementwise.softmax and apply_dropout: a layer would keep their weights and masks for its backward pass,
        # block after block.
        weights = jax.nn.softmax(jnp.where(allow[:, None], scores, jnp.finfo(jnp.float32).min))
        if rate:
            survives = draw_keep_mask(jax.random.fold_in(key, number), 1 - rate, weights.shape, rows)
            weights = jnp.where(survives, weights * (1 / (1 - rate)), 0)
        out = mixed_einsum("bhlm,bmhk->blhk", weights, v, dtype, dtype)
        return jnp.where(allow.any(-1)[:, :, None, None], out, 0)

    def step(_, block):
        return None, attend_block(*block)

    _, out = jax.lax.scan(step, None, (jnp.arange(count), blocks(q * K**-0.5), blocks(segment_ids)))
    return jnp.moveaxis(out, 0, 1).reshape(B, count * BLOCK, H, K)[:, :L]


def run(qkv, context: Context, request: AttentionRequest, key):
    q, k, v = split_qkv(qkv, request.head_size)
    dropped, bias = (request.dropout, key, context.rows), context.relative.bias if context.relative else None
    out = blocked_attention(q, k, v, masked_segment_ids(context), bias, dropped)
    return out.reshape(*qkv.shape[:2], -1)


def refusal(request: AttentionRequest) -> str | None:
    if request.relative and not request.has_bias:
        return "does not support relative terms other than a bias for each distance"
    if not request.has_bias and request.platform != "cpu":
        return "needs a CPU, or a bias for each distance"
    if request.window is not None:
        return "does not support local attention"
    if request.length <= MIN_LENGTH:
        return f"needs rows of more than {MIN_LENGTH} tokens, not {request.length}"
    return None
