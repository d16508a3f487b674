"""The TPU kernel of short_attention.py with what distances add to scores.

The products of a query with the states of all distances are [L, 2L], a column for each distance; rolled on, row by row,
one place further, the columns are keys. So scores are never written to memory, nor gathered number by number. A table
stays on the chip while the rows of a batch pass.

Tables have 2L columns: that of a distance, key minus query, is the distance + L - 1, and the last one is not read. That
of queries counts the other way round, since there keys are the rows.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models.short_attention import (
    LANES,
    UNSEEN,
    Options,
    allowed,
    dot,
    drop,
    group_seeds,
    heads_per_program,
)

# Bytes on the chip for scores by distance of 512 places, three times what a kernel gets unasked.
ROOM = 48 * 2**20


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def attention(qkv, segments, seeds, tables: Mapping, options: Options):
    """As short_attention's, with tables: "bias" [H, 1, 2L], or "keys" and "queries" [2L, H x K]."""
    return forward(qkv, segments, seeds, tables, options)[0]


def forward(qkv, segments, seeds, tables, options):
    inputs, specs, grid = arranged(qkv, segments, seeds, tables, options)
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
    return out, (qkv, segments, seeds, tables)


def backward(options, residuals, gradient):
    qkv, segments, seeds, tables = residuals
    inputs, specs, grid = arranged(qkv, segments, seeds, tables, options)
    L, lanes = qkv.shape[2], qkv.shape[3] // grid[0]
    of_qkv, *of_tables = pl.pallas_call(
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
    to_tables = zip(tables, of_tables, strict=True)
    return of_qkv, None, None, {name: to.astype(tables[name].dtype) for name, to in to_tables}


attention.defvjp(forward, backward)


def arranged(qkv, segments, seeds, tables, options: Options):
    """(inputs, their blocks, the grid): for each group of heads the rows one after the other."""
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
    inputs = (qkv, segments[:, None], group_seeds(seeds, per_program), *tables.values())
    return inputs, specs, (width // lanes, B)


def forward_kernel(qkv, segments, seeds, *refs, names: tuple[str, ...], options: Options):
    *tables, out = refs
    size, rate = options.head_size, options.rate
    allow, alive = allowed(segments[0], options.window)
    for head in range(qkv.shape[3] // size):
        here = slice(head * size, (head + 1) * size)
        q, k, v = scaled(qkv, here, names)
        weights, total = softmax(q, k, of_head(tables, names, head, here), allow)
        if rate:
            weights = drop(weights, seeds[0, 0, :, head : head + 1], rate)
        mixed = jnp.dot(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
        out[0, :, here] = jnp.where(alive, mixed / total, 0).astype(out.dtype)


def backward_kernel(qkv, segments, seeds, *refs, names: tuple[str, ...], options: Options):
    tables, (gradient, out, *to_tables) = refs[: len(names)], refs[len(names) :]
    size, rate = options.head_size, options.rate
    allow, alive = allowed(segments[0], options.window)

    @pl.when(pl.program_id(1) == 0)
    def begin():
        for to_table in to_tables:
            to_table[...] = jnp.zeros_like(to_table)

    for head in range(qkv.shape[3] // size):
        here = slice(head * size, (head + 1) * size)
        q, k, v = scaled(qkv, here, names)
        own = of_head(tables, names, head, here)
        incoming = jnp.where(alive, gradient[0, :, here], 0)
        weights, total = softmax(q, k, own, allow)
        weights = weights / total
        seed = seeds[0, 0, :, head : head + 1]
        used = drop(weights, seed, rate) if rate else weights
        to_used = dot(incoming, v, 1, 1)
        to_weights = drop(to_used, seed, rate) if rate else to_used
        to_scores = weights * (to_weights - (weights * to_weights).sum(-1, keepdims=True))
        rounded = to_scores.astype(q.dtype)
        to_q, to_k = dot(rounded, k, 1, 0), dot(rounded, q, 0, 0)
        for name, to_table in zip(names, to_tables, strict=True):
            if name == "bias":
                to_table[head] += unskewed(to_scores).sum(0, keepdims=True)
            elif name == "keys":
                columns = unskewed(rounded).astype(q.dtype)
                to_q += flipped(dot(columns, own[name], 1, 0).astype(q.dtype))
                to_table[:, here] += dot(columns, flipped(q).astype(q.dtype), 0, 0)
            else:
                columns = unskewed(to_scores.T.astype(k.dtype)).astype(k.dtype)
                to_k += flipped(dot(columns, own[name], 1, 0).astype(k.dtype))
                to_table[:, here] += dot(columns, flipped(k).astype(k.dtype), 0, 0)
        out[0, 0, :, here] = (to_q * scale(size, names)).astype(out.dtype)
        out[0, 1, :, here] = to_k.astype(out.dtype)
        out[0, 2, :, here] = dot(used.astype(v.dtype), incoming, 0, 0).astype(out.dtype)


def scale(size: int, names: tuple[str, ...]) -> float:
    return ((1 + len({"keys", "queries"} & set(names))) * size) ** -0.5


def scaled(qkv, here: slice, names: tuple[str, ...]):
    q, k, v = (qkv[0, part, :, here] for part in range(3))
    return q * scale(here.stop - here.start, names), k, v


def of_head(tables, names: tuple[str, ...], head: int, here: slice) -> dict:
    return {
        name: table[head] if name == "bias" else table[:, here]
        for name, table in zip(names, tables, strict=True)
    }


def softmax(q, k, tables: Mapping, allow):
    """Unnormalised weights [L, L] and their sums [L, 1]."""
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
    """[L, 2L] by distance -> [L, L] by place: row i begins at column L - 1 - i."""
    L = columns.shape[0]
    return pltpu.roll(columns, L + 1, 1, stride=1, stride_axis=0)[:, :L]


def unskewed(places):
    """[L, L] by place -> [L, 2L] by distance, zeros elsewhere, the last row first: only then rows roll on, and not
    back, which the chip cannot."""
    L = places.shape[0]
    last_first = flipped(places)
    return pltpu.roll(jnp.concatenate([last_first, jnp.zeros((L, L))], axis=1), 0, 1, stride=1, stride_axis=0)


def flipped(x):
    """Float32, the last row first: each block of rows times a matrix of ones across."""
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
