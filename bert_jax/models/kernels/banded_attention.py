"""Local attention in blocks along the diagonal, with memory linear in the length.

A block of queries meets the keys of its own block and those within the window on both sides.
"""

import jax.numpy as jnp
import numpy as np

from bert_jax.models.context import Context
from bert_jax.models.dropout import apply_dropout
from bert_jax.models.einsum import mixed_einsum
from bert_jax.models.elementwise import softmax
from bert_jax.models.kernels.request import AttentionRequest, masked_segment_ids, split_qkv

MIN_BLOCK = 128  # queries in a block, at least
MIN_LENGTH_RATIO = (
    4  # a row must be this many times as long as a block's keys: below that, full attention is as fast
)


def block_size(window: int) -> int:
    return max(MIN_BLOCK, window)


def is_worthwhile(length: int, window: int) -> bool:
    return length >= MIN_LENGTH_RATIO * (block_size(window) + 2 * window)


def banded_attention(q, k, v, segment_ids, window: int, dropped):
    """Map q, k, v [B, L, H, K] and segment_ids [B, L] (0: padding) to [B, L, H, K]; `dropped` is (rate, key, rows)."""
    B, L, H, K = q.shape
    size = block_size(window)
    count = -(-L // size)

    def blocks(x):
        beyond = count * size - L
        padded = jnp.pad(x, [(0, 0), (0, beyond)] + [(0, 0)] * (x.ndim - 2))
        return padded.reshape(B, count, size, *x.shape[2:])

    def reached(x):
        own = blocks(x)
        ends = jnp.pad(own, [(0, 0), (1, 1)] + [(0, 0)] * (own.ndim - 2))
        return jnp.concatenate([ends[:, :-2, size - window :], own, ends[:, 2:, :window]], axis=2)

    distances = np.arange(size)[:, None] - (np.arange(size + 2 * window) - window)
    of_query, of_key = blocks(segment_ids)[..., None], reached(segment_ids)[:, :, None]
    allow = (of_query == of_key) & (of_key > 0) & (np.abs(distances) <= window)
    allow = allow[:, None]  # [B, 1, N, S, S + 2 x window]
    dtype = str(q.dtype)
    scores = mixed_einsum("bnlhk,bnmhk->bhnlm", blocks(q * K**-0.5), reached(k), dtype, "float32")
    weights = softmax(jnp.where(allow, scores, jnp.finfo(jnp.float32).min))
    rate, key, rows = dropped
    if rate:
        weights = apply_dropout(weights, rate, key, rows)
    out = mixed_einsum("bhnlm,bnmhk->bnlhk", weights, reached(v), dtype, dtype)
    out = jnp.where(allow.any(-1)[:, 0, :, :, None, None], out, 0)
    return out.reshape(B, count * size, H, K)[:, :L]


def run(qkv, context: Context, request: AttentionRequest, key):
    q, k, v = split_qkv(qkv, request.head_size)
    dropped = request.dropout, key, context.rows
    out = banded_attention(q, k, v, masked_segment_ids(context), request.window, dropped)
    return out.reshape(*qkv.shape[:2], -1)


def refusal(request: AttentionRequest) -> str | None:
    if request.window is None:
        return "needs a window, and this layer sees all tokens"
    if request.relative:
        return "does not support relative positions"
    if not is_worthwhile(request.length, request.window):
        return f"needs rows many times as long as the window of {request.window}, not {request.length} tokens"
    return None
