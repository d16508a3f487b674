"""The TPU kernel of short_attention.py, with relative terms.

The products of the queries with all distances are [L, 2L], with a column for each distance. If each row is rolled one
position further than the row before, the columns are keys. So scores are neither written to memory nor gathered number
by number. A table stays on the chip for all rows of a batch.

Tables have 2L rows or columns: that of a distance (key minus query) has the index distance + L - 1, and the last one is
not read. The table of queries has the opposite order, because its products have keys as rows.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models import relative_terms
from bert_jax.models.context import Context
from bert_jax.models.kernels.request import AttentionRequest, masked_segment_ids, scale_of
from bert_jax.models.kernels.short_attention import (
    LANES,
    MAX_LENGTH,
    UNSEEN,
    KernelOptions,
    dot,
    drop_weights,
    group_seeds,
    heads_per_program,
    segment_mask,
    short_attention,
)

# Bytes on the chip for scores by distance of 512 tokens: three times what a kernel gets by default.
ROOM = 48 * 2**20


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def relative_attention(qkv, segment_ids, seeds, tables: Mapping, options: KernelOptions):
    """Compute short_attention.attention with tables: "bias" [H, 1, 2L], or "keys", "queries" or both [2L, H x K]."""
    return forward(qkv, segment_ids, seeds, tables, options)[0]


def forward(qkv, segment_ids, seeds, tables, options):
    inputs, specs, grid = arranged(qkv, segment_ids, seeds, tables, options)
    B, _, L, width = qkv.shape
    lanes = width // grid[0]
    out = pl.pallas_call(
        partial(forward_kernel, names=tuple(tables), options=options),
        grid=grid,
        in_specs=specs,
        out_specs=pl.BlockSpec((1, L, lanes), lambda g, b: (b, 0, g)),
        out_shape=jax.ShapeDtypeStruct((B, L, width), qkv.dtype),
        interpret=options.interpret,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=ROOM),
        name="relative_attention",
    )(*inputs)
    return out, (qkv, segment_ids, seeds, tables)


def backward(options, residuals, gradient):
    qkv, segment_ids, seeds, tables = residuals
    inputs, specs, grid = arranged(qkv, segment_ids, seeds, tables, options)
    L, lanes = qkv.shape[2], qkv.shape[3] // grid[0]
    d_qkv, *d_tables = pl.pallas_call(
        partial(backward_kernel, names=tuple(tables), options=options),
        grid=grid,
        in_specs=[*specs, pl.BlockSpec((1, L, lanes), lambda g, b: (b, 0, g))],
        out_specs=[specs[0], *specs[3:]],
        out_shape=[
            jax.ShapeDtypeStruct(qkv.shape, qkv.dtype),
            *(jax.ShapeDtypeStruct(table.shape, jnp.float32) for table in tables.values()),
        ],
        interpret=options.interpret,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=ROOM),
        name="relative_attention_backward",
    )(*inputs, gradient)
    named = zip(tables, d_tables, strict=True)
    return d_qkv, None, None, {name: table.astype(tables[name].dtype) for name, table in named}


relative_attention.defvjp(forward, backward)


def arranged(qkv, segment_ids, seeds, tables, options: KernelOptions):
    """Return (inputs, their block specs, the grid). The grid runs over groups of heads and, for each, over the rows."""
    B, _, L, width = qkv.shape
    per_program = heads_per_program(width // options.head_size, options.head_size)
    lanes = per_program * options.head_size
    blocks = {
        "bias": pl.BlockSpec((per_program, 1, 2 * L), lambda g, b: (g, 0, 0)),
        "keys": pl.BlockSpec((2 * L, lanes), lambda g, b: (0, g)),
        "queries": pl.BlockSpec((2 * L, lanes), lambda g, b: (0, g)),
    }
    specs = [
        pl.BlockSpec((1, 3, L, lanes), lambda g, b: (b, 0, 0, g)),
        pl.BlockSpec((1, 1, L), lambda g, b: (b, 0, 0)),
        pl.BlockSpec((1, 1, 1, LANES), lambda g, b: (b, g, 0, 0)),
        *(blocks[name] for name in tables),
    ]
    inputs = (qkv, segment_ids[:, None], group_seeds(seeds, per_program), *tables.values())
    return inputs, specs, (width // lanes, B)


def forward_kernel(qkv, segment_ids, seeds, *refs, names: tuple[str, ...], options: KernelOptions):
    *tables, out = refs
    size, rate = options.head_size, options.rate
    allow, alive = segment_mask(segment_ids[0], options.window)
    for head in range(qkv.shape[3] // size):
        here = slice(head * size, (head + 1) * size)
        q, k, v = load_scaled_qkv(qkv, here, names)
        weights, total = relative_softmax(q, k, head_tables(tables, names, head, here), allow)
        if rate:
            weights = drop_weights(weights, seeds[0, 0, :, head : head + 1], rate)
        mixed = jnp.dot(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
        out[0, :, here] = jnp.where(alive, mixed / total, 0).astype(out.dtype)


def backward_kernel(qkv, segment_ids, seeds, *refs, names: tuple[str, ...], options: KernelOptions):
    tables, (gradient, out, *d_tables) = refs[: len(names)], refs[len(names) :]
    size, rate = options.head_size, options.rate
    allow, alive = segment_mask(segment_ids[0], options.window)

    @pl.when(pl.program_id(1) == 0)
    def begin():
        for d_table in d_tables:
            d_table[...] = jnp.zeros_like(d_table)

    for head in range(qkv.shape[3] // size):
        here = slice(head * size, (head + 1) * size)
        q, k, v = load_scaled_qkv(qkv, here, names)
        own = head_tables(tables, names, head, here)
        incoming = jnp.where(alive, gradient[0, :, here], 0)
        weights, total = relative_softmax(q, k, own, allow)
        weights = weights / total
        seed = seeds[0, 0, :, head : head + 1]
        used = drop_weights(weights, seed, rate) if rate else weights
        d_used = dot(incoming, v, 1, 1)
        d_weights = drop_weights(d_used, seed, rate) if rate else d_used
        d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))
        rounded = d_scores.astype(q.dtype)
        d_q, d_k = dot(rounded, k, 1, 0), dot(rounded, q, 0, 0)
        for name, d_table in zip(names, d_tables, strict=True):
            if name == "bias" and not options.trains_bias:
                continue
            if name == "bias":
                d_table[head] += unskewed(d_scores).sum(0, keepdims=True)
            elif name == "keys":
                columns = unskewed(rounded).astype(q.dtype)
                d_q += flipped(dot(columns, own[name], 1, 0).astype(q.dtype))
                d_table[:, here] += dot(columns, flipped(q).astype(q.dtype), 0, 0)
            else:
                columns = unskewed(d_scores.T.astype(k.dtype)).astype(k.dtype)
                d_k += flipped(dot(columns, own[name], 1, 0).astype(k.dtype))
                d_table[:, here] += dot(columns, flipped(k).astype(k.dtype), 0, 0)
        out[0, 0, :, here] = (d_q * scale(size, names)).astype(out.dtype)
        out[0, 1, :, here] = d_k.astype(out.dtype)
        out[0, 2, :, here] = dot(used.astype(v.dtype), incoming, 0, 0).astype(out.dtype)


def scale(size: int, names: tuple[str, ...]) -> float:
    return ((1 + len({"keys", "queries"} & set(names))) * size) ** -0.5


def load_scaled_qkv(qkv, here: slice, names: tuple[str, ...]):
    q, k, v = (qkv[0, part, :, here] for part in range(3))
    return q * scale(here.stop - here.start, names), k, v


def head_tables(tables, names: tuple[str, ...], head: int, here: slice) -> dict:
    return {
        name: table[head] if name == "bias" else table[:, here]
        for name, table in zip(names, tables, strict=True)
    }


def relative_softmax(q, k, tables: Mapping, allow):
    """Return unnormalised weights [L, L] and their sums [L, 1]."""
    scores, L = dot(q, k, 1, 1), q.shape[0]
    if "bias" in tables:
        scores += skewed(jnp.broadcast_to(tables["bias"], (L, 2 * L)))
    if "keys" in tables:
        scores += skewed(dot(q, tables["keys"], 1, 1))
    if "queries" in tables:
        scores += skewed(dot(k, tables["queries"], 1, 1)).T
    scores = jnp.where(allow, scores, UNSEEN)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return weights, weights.sum(-1, keepdims=True)


def skewed(columns):
    """Arrange [L, 2L] by distance as [L, L] by position: row i starts at column L - 1 - i."""
    L = columns.shape[0]
    return pltpu.roll(columns, L + 1, 1, stride=1, stride_axis=0)[:, :L]


def unskewed(by_position):
    """Arrange [L, L] by position as [L, 2L] by distance, padded with zeros, with the last row first.

    In this order rows roll forwards; the chip cannot roll them backwards.
    """
    L = by_position.shape[0]
    last_first = flipped(by_position)
    return pltpu.roll(jnp.concatenate([last_first, jnp.zeros((L, L))], axis=1), 0, 1, stride=1, stride_axis=0)


def flipped(x):
    """Reverse the rows, in float32: multiply blocks of rows by a matrix with ones on its antidiagonal."""
    rows, columns = (jax.lax.broadcasted_iota(jnp.int32, (LANES, LANES), axis) for axis in (0, 1))
    across = (rows + columns == LANES - 1).astype(x.dtype)
    starts = range(x.shape[0] - LANES, -1, -LANES)
    exact = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    return jnp.concatenate(
        [
            jax.lax.dot(across, x[start : start + LANES], precision=exact, preferred_element_type=jnp.float32)
            for start in starts
        ]
    )


def run(qkv, context: Context, request: AttentionRequest, seeds, interpret: bool = False):
    options = KernelOptions(request.head_size, request.window, request.dropout, interpret)
    parts_first, segment_ids = qkv.transpose(0, 2, 1, 3), masked_segment_ids(context)
    if context.relative is None:
        return short_attention(parts_first, segment_ids, seeds, options)
    scale = scale_of(request.head_size, context.relative)
    tables = relative_terms.kernel_tables(context.relative, scale, request.dtype)
    options = replace(options, trains_bias=not context.relative.is_fixed)
    return relative_attention(parts_first, segment_ids, seeds, tables, options)


def refusal(request: AttentionRequest) -> str | None:
    if request.platform != "tpu":
        return f"needs a TPU, and this program is for {request.platform}"
    if request.length % LANES or request.length > MAX_LENGTH:
        return f"needs a length that is a multiple of {LANES} up to {MAX_LENGTH}, not {request.length}"
    if not heads_per_program(request.heads, request.head_size):
        return f"needs heads that fill {LANES} lanes together, not {request.heads} heads of {request.head_size} a chip"
    return None
