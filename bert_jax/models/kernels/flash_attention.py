"""A Pallas kernel for attention on an NVIDIA GPU, with dropout, for rows of any length.

A block of keys after another passes by a block of queries, which keeps the running maximum and sum of its weights.
Scores never leave the chip. The backward pass computes the weights again, from the logarithm of each query's sum.
Blocks of keys in which no query of a block sees a key are not visited: padding, other sequences, beyond the window.

The random bits of dropout are a hash of a score's query and key and of a seed for each row and head. They are the same
on any device, and in blocks of any size.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bert_jax.models import relative_terms
from bert_jax.models.context import Context
from bert_jax.models.elementwise import SAVED
from bert_jax.models.kernels.flash_tiles import (
    BLOCK,
    UNSEEN,
    QueryRow,
    Row,
    block,
    dot,
    draw_kept,
    drop,
    load,
    load_queries,
    tile_scores,
    tile_weights,
    tokens,
)
from bert_jax.models.kernels.request import (
    AttentionRequest,
    KernelOptions,
    gpu_refusal,
    masked_segment_ids,
    scale_of,
    split_qkv,
)

HEAD_SIZES = (32, 64, 128)
MIN_LENGTH = 128  # shorter rows were not measured
PROGRAMS = 1024  # enough to keep every processor of a GPU busy


def flash_attention(qkv, segment_ids, seeds, bias, added, options: KernelOptions):
    """Map qkv [B, L, 3, H x K], segment_ids [B, L] (0: padding) and seeds [B, H] to [B, L, H x K].

    A bias by distance [H, 2L - 1] or an array [B, H, L, L] is added to the scores; both may be None.
    """
    length = qkv.shape[1]
    beyond = -length % BLOCK
    if beyond:
        qkv = jnp.pad(qkv, ((0, 0), (0, beyond), (0, 0), (0, 0)))
        segment_ids = jnp.pad(segment_ids, ((0, 0), (0, beyond)))
        bias = None if bias is None else jnp.pad(bias, ((0, 0), (beyond, beyond)))
        added = None if added is None else jnp.pad(added, ((0, 0), (0, 0), (0, beyond), (0, beyond)))
    # With an array of scores every block is visited, because each has a gradient to write.
    spans = visited_blocks(segment_ids, options.window, all_blocks=added is not None)
    return attend_in_blocks(Row(qkv, segment_ids, spans, seeds, bias, added), options)[:, :length]


def visited_blocks(segment_ids, window: int | None, all_blocks: bool = False):
    """Return the first block of keys that a block of queries visits, and the one after the last: [B, L / 64, 2].

    Keys see the same blocks of queries, because the mask is symmetric.
    """
    count = segment_ids.shape[1] // BLOCK
    number = jnp.arange(count)
    ids = segment_ids.reshape(-1, count, BLOCK)
    lowest, highest = jnp.where(ids > 0, ids, jnp.iinfo(ids.dtype).max).min(-1), ids.max(-1)
    visited = (lowest[:, :, None] <= highest[:, None]) & (highest[:, :, None] >= lowest[:, None])
    if window is not None:
        # The nearest tokens of two blocks are this far apart.
        visited &= (abs(number[:, None] - number) - 1) * BLOCK + 1 <= window
    if all_blocks:
        visited = jnp.ones_like(visited)
    first, last = visited.argmax(-1), count - visited[..., ::-1].argmax(-1)
    return jnp.stack([first, jnp.where(visited.any(-1), last, first)], axis=-1).astype(jnp.int32)


def row_specs(row: Row, head_size: int, count: int | None = None) -> Row:
    """Return what part of each array a program reads: that of its row and head or, with their count, of all rows."""
    L = row.qkv.shape[1]
    return Row(
        row_spec(count, (L, 3, head_size), lambda h: (0, 0, h)),
        row_spec(count, (L,), lambda h: (0,)),
        row_spec(count, (L // BLOCK, 2), lambda h: (0, 0)),
        row_spec(count, (None,), lambda h: (h,)),
        None if row.bias is None else pl.BlockSpec((None, row.bias.shape[1]), lambda i, h, b: (h, 0)),
        None if row.added is None else row_spec(count, (None, L, L), lambda h: (h, 0, 0)),
    )


def query_specs(L: int, head_size: int, count: int | None = None) -> QueryRow:
    number = row_spec(count, (None, L), lambda h: (h, 0))
    return QueryRow(row_spec(count, (L, head_size), lambda h: (0, h)), number, number)


def row_spec(count: int | None, shape: tuple, index: Callable[[Any], tuple]) -> pl.BlockSpec:
    return pl.BlockSpec((count, *shape), lambda i, h, b: (0 if count else b, *index(h)))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def attend_in_blocks(row: Row, options: KernelOptions):
    return forward(row, options)[0]


def forward(row: Row, options: KernelOptions):
    (B, L, _, width), K = row.qkv.shape, options.head_size
    out, log_sums = pl.pallas_call(
        partial(forward_kernel, options=options),
        grid=(L // BLOCK, width // K, B),
        in_specs=[row_specs(row, K)],
        out_specs=(
            pl.BlockSpec((None, BLOCK, K), lambda i, h, b: (b, i, h)),
            pl.BlockSpec((None, None, BLOCK), lambda i, h, b: (b, h, i)),
        ),
        out_shape=(
            jax.ShapeDtypeStruct((B, L, width), row.qkv.dtype),
            jax.ShapeDtypeStruct((B, width // K, L), jnp.float32),
        ),
        name="flash_attention",
        **settings(row, options, products=2),
    )(row)
    out, log_sums = checkpoint_name(out, SAVED), checkpoint_name(log_sums, SAVED)
    return out, (row, out, log_sums)


def backward(options: KernelOptions, residuals, gradient):
    row, out, log_sums = residuals
    (B, L, _, width), K, added = row.qkv.shape, options.head_size, row.added
    products = (gradient.astype(jnp.float32) * out.astype(jnp.float32)).reshape(B, L, width // K, K)
    queries = QueryRow(gradient, log_sums, products.sum(-1).transpose(0, 2, 1))
    d_qkv, d_added = pl.pallas_call(
        partial(backward_kernel, options=options),
        grid=(L // BLOCK, width // K, B),
        in_specs=[row_specs(row, K), query_specs(L, K)],
        out_specs=(
            pl.BlockSpec((None, BLOCK, 3, K), lambda i, h, b: (b, i, 0, h)),
            None if added is None else pl.BlockSpec((None, None, BLOCK, L), lambda i, h, b: (b, h, i, 0)),
        ),
        out_shape=(
            jax.ShapeDtypeStruct(row.qkv.shape, row.qkv.dtype),
            None if added is None else jax.ShapeDtypeStruct(added.shape, added.dtype),
        ),
        name="flash_attention_backward",
        **settings(row, options, products=7),
    )(row, queries)
    d_bias = bias_gradient(row, queries, options) if options.trains_bias else None
    return (Row(d_qkv, None, None, None, d_bias, d_added),)


attend_in_blocks.defvjp(forward, backward)


def bias_gradient(row: Row, queries: QueryRow, options: KernelOptions):
    """Return the gradient of the bias, [H, 2L - 1]. A program adds up a tile of scores over a part of the rows."""
    (B, L, _, width), K = row.qkv.shape, options.head_size
    H, count = width // K, L // BLOCK
    parts = min(B, pl.cdiv(PROGRAMS, H * count * count))
    by_tile = pl.pallas_call(
        partial(bias_kernel, options=options),
        grid=(count * count, H, parts),
        in_specs=[row_specs(row, K, B), query_specs(L, K, B)],
        out_specs=pl.BlockSpec(
            (None, None, BLOCK, BLOCK), lambda tile, h, part: (part, h, tile // count, tile % count)
        ),
        out_shape=jax.ShapeDtypeStruct((parts, H, L, L), jnp.float32),
        name="flash_attention_bias",
        **settings(row, options, products=2),
    )(row, queries)
    (gradient,) = jax.linear_transpose(relative_terms.expand_distances, row.bias)(by_tile.sum(0))
    return gradient


def settings(row: Row, options: KernelOptions, products: int) -> dict:
    """Return the settings of a kernel that computes this number of products for each tile."""
    B, L, _, width = row.qkv.shape
    pairs = (
        B * (width // options.head_size) * L * (min(L, 2 * options.window + BLOCK) if options.window else L)
    )
    # How many blocks are visited is not known before the program runs: all within the window.
    cost = pl.CostEstimate(
        flops=products * 2 * pairs * options.head_size,
        transcendentals=pairs,
        bytes_accessed=math.prod(row.qkv.shape) * row.qkv.dtype.itemsize,
    )
    warps = 4 if options.head_size <= 64 else 8
    return {
        "interpret": options.interpret,
        "cost_estimate": cost,
        "compiler_params": triton.CompilerParams(num_warps=warps, num_stages=2),
    }


def forward_kernel(row: Row, out, log_sums, *, options: KernelOptions):
    i, rate = pl.program_id(0), options.rate
    q, queries = load(row, 0, i), tokens(row, i, axis=0)

    def visit(j, carry):
        top, total, mixed = carry
        k, v, keys = load(row, 1, j), load(row, 2, j), tokens(row, j, axis=1)
        scores = tile_scores(dot(q, k, 1, 1), row, queries, keys, options)
        highest = jnp.maximum(top, scores.max(1, keepdims=True))
        weights, shrunk = jnp.exp2(scores - highest), jnp.exp2(top - highest)
        total = total * shrunk + weights.sum(1, keepdims=True)
        kept = draw_kept(row, queries, keys, rate)
        mixed = mixed * shrunk + dot(drop(weights, kept, rate).astype(v.dtype), v, 1, 0)
        return highest, total, mixed

    zeros = jnp.zeros((BLOCK, 1), jnp.float32)
    start = zeros + UNSEEN, zeros, jnp.zeros(q.shape, jnp.float32)
    top, total, mixed = jax.lax.fori_loop(row.spans[i, 0], row.spans[i, 1], visit, start)
    alive = queries.segment_ids > 0
    out[...] = jnp.where(alive, mixed / total, 0).astype(out.dtype)
    # With so large a sum, the backward pass finds no weights for a query that sees no key.
    log_sums[...] = jnp.where(alive, top + jnp.log2(total), -UNSEEN).reshape(BLOCK)


def backward_kernel(row: Row, query_row: QueryRow, d_qkv, d_added, *, options: KernelOptions):
    """Compute the gradients of a block of queries, then of the keys and values at the same place."""
    here, K, rate = pl.program_id(0), options.head_size, options.rate
    visited = row.spans[here, 0], row.spans[here, 1]
    zeros = jnp.zeros((BLOCK, K), jnp.float32)

    q, queries = load(row, 0, here), tokens(row, here, axis=0)
    gradient, log_sums, inner, _ = load_queries(query_row, here, axis=0)

    def visit_keys(j, d_q):
        k, v, keys = load(row, 1, j), load(row, 2, j), tokens(row, j, axis=1)
        weights = tile_weights(dot(q, k, 1, 1), row, queries, keys, log_sums, options)
        d_weights = drop(dot(gradient, v, 1, 1), draw_kept(row, queries, keys, rate), rate)
        d_scores = weights * (d_weights - inner)
        if d_added is not None:
            d_added[:, block(j)] = d_scores.astype(d_added.dtype)
        return d_q + dot(d_scores.astype(k.dtype), k, 1, 0)

    d_q = jax.lax.fori_loop(*visited, visit_keys, zeros)
    d_qkv[:, 0, :] = (d_q * options.scale).astype(d_qkv.dtype)

    k, v, keys = load(row, 1, here), load(row, 2, here), tokens(row, here, axis=0)

    def visit_queries(i, carry):
        d_k, d_v = carry
        q, queries = load(row, 0, i), tokens(row, i, axis=1)
        gradient, log_sums, inner, _ = load_queries(query_row, i, axis=1)
        weights = tile_weights(dot(k, q, 1, 1), row, queries, keys, log_sums, options)
        kept = draw_kept(row, queries, keys, rate)
        d_v += dot(drop(weights, kept, rate).astype(v.dtype), gradient, 1, 0)
        d_scores = weights * (drop(dot(v, gradient, 1, 1), kept, rate) - inner)
        return d_k + dot(d_scores.astype(q.dtype), q, 1, 0), d_v

    d_k, d_v = jax.lax.fori_loop(*visited, visit_queries, (zeros, zeros))
    d_qkv[:, 1, :] = (d_k * options.scale).astype(d_qkv.dtype)
    d_qkv[:, 2, :] = d_v.astype(d_qkv.dtype)


def bias_kernel(rows: Row, query_rows: QueryRow, out, *, options: KernelOptions):
    """Add up the gradients of a tile of scores over a part of the rows [B, ...]."""
    B, L, rate = rows.qkv.shape[0], rows.qkv.shape[1], options.rate
    tile, part, parts = pl.program_id(0), pl.program_id(2), pl.num_programs(2)
    i, j = tile // (L // BLOCK), tile % (L // BLOCK)

    def add_row(b, total):
        row, query_row = rows._replace(at=(b,)), query_rows._replace(at=(b,))
        q, queries = load(row, 0, i), tokens(row, i, axis=0)
        k, v, keys = load(row, 1, j), load(row, 2, j), tokens(row, j, axis=1)
        gradient, log_sums, inner, _ = load_queries(query_row, i, axis=0)
        weights = tile_weights(dot(q, k, 1, 1), row, queries, keys, log_sums, options)
        d_weights = drop(dot(gradient, v, 1, 1), draw_kept(row, queries, keys, rate), rate)
        return total + weights * (d_weights - inner)

    start, stop = part * B // parts, (part + 1) * B // parts
    out[...] = jax.lax.fori_loop(start, stop, add_row, jnp.zeros((BLOCK, BLOCK), jnp.float32))


def run(qkv, context: Context, request: AttentionRequest, seeds, interpret: bool = False):
    terms, bias, added = context.relative, None, None
    scale = scale_of(request.head_size, terms)
    if terms and terms.bias is not None:
        bias = terms.bias.astype(jnp.float32)
    elif terms:
        # Products with distances repeat for many pairs. XLA computes them once, and the kernel adds them.
        q, k, _ = split_qkv(qkv, request.head_size)
        added = relative_terms.relative_scores(terms, q * scale, k, scale, request.dtype).astype(qkv.dtype)
    trains_bias = bias is not None and not terms.is_fixed
    options = KernelOptions(request.head_size, scale, request.window, request.dropout, interpret, trains_bias)
    return flash_attention(qkv, masked_segment_ids(context), seeds, bias, added, options)


def refusal(request: AttentionRequest) -> str | None:
    if reason := gpu_refusal(request):
        return reason
    if request.head_size not in HEAD_SIZES:
        return f"needs a head size of 32, 64 or 128, not {request.head_size}"
    if request.length < MIN_LENGTH:
        return f"needs rows of at least {MIN_LENGTH} tokens, not {request.length}"
    return None
