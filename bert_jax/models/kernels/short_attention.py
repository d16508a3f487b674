"""A Pallas kernel for attention on a TPU, with dropout and relative terms, for rows that fit on the chip as a whole.

A row of up to 512 tokens needs no online softmax: its scores are computed, normalised, dropped and used without leaving
the chip. The backward pass recomputes them from the queries and keys, so none are stored. Heads are side by side in
the last axis, as the projections write and read them, so nothing is transposed, and no head of 64 numbers is padded to
the 128 lanes.

The random bits of dropout are a hash of a score's position and of a seed for each row and head. They are the same on
any device, including CPUs.

The relative terms are tables with 2L rows or columns: that of a distance (key minus query) has the index
distance + L - 1, and the last one is not read. The table of queries has the opposite order, because its products have
keys as rows. The products of the queries with all distances are [L, 2L], with a column for each distance. If each row
is rolled one position further than the row before, the columns are keys. So scores are neither written to memory nor
gathered number by number. A table stays on the chip for all rows of a batch.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models import relative_terms
from bert_jax.models.context import Context
from bert_jax.models.dropout import mix_bits
from bert_jax.models.kernels.request import AttentionRequest, KernelOptions, masked_segment_ids, scale_of

LANES = 128
MAX_LENGTH = 512
UNSEEN = -1e30  # the score of a masked key
# Bytes on the chip for scores by distance of 512 tokens: three times what a kernel gets by default.
ROOM = 48 * 2**20


def run(qkv, context: Context, request: AttentionRequest, seeds, interpret: bool = False):
    parts_first, segment_ids = qkv.transpose(0, 2, 1, 3), masked_segment_ids(context)
    terms = context.relative
    scale = scale_of(request.head_size, terms)
    tables = relative_terms.kernel_tables(terms, scale, request.dtype) if terms else {}
    trains_bias = terms is None or not terms.is_fixed
    options = KernelOptions(request.head_size, scale, request.window, request.dropout, interpret, trains_bias)
    return short_attention(parts_first, segment_ids, seeds, tables, options)


def refusal(request: AttentionRequest) -> str | None:
    if request.platform != "tpu":
        return f"needs a TPU, and this program is for {request.platform}"
    if request.length % LANES or request.length > MAX_LENGTH:
        return f"needs a length that is a multiple of {LANES} up to {MAX_LENGTH}, not {request.length}"
    if not heads_per_program(request.heads, request.head_size):
        return f"needs heads that fill {LANES} lanes together, not {request.heads} heads of {request.head_size} a chip"
    return None


def heads_per_program(heads: int, size: int) -> int:
    """Return how many heads a program computes: as many as fill 256 lanes, or 128; 0 if neither is possible."""
    for count in (256 // size, LANES // size):
        if count and not heads % count and not count * size % LANES:
            return count
    return 0


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def short_attention(qkv, segment_ids, seeds, tables: Mapping, options: KernelOptions):
    """Map qkv [B, 3, L, H x K], segment_ids [B, L] (0 on padding) and seeds [B, H] to [B, L, H x K].

    The tables are none, "bias" [H, 1, 2L], or "keys", "queries" or both [2L, H x K].
    """
    return forward(qkv, segment_ids, seeds, tables, options)[0]


def forward(qkv, segment_ids, seeds, tables: Mapping, options: KernelOptions):
    inputs, specs, states, call = lay_out(qkv, segment_ids, seeds, tables, options)
    B, _, L, width = qkv.shape
    out = call(
        forward_kernel,
        in_specs=specs,
        out_specs=states,
        out_shape=jax.ShapeDtypeStruct((B, L, width), qkv.dtype),
    )(*inputs)
    return out, (qkv, segment_ids, seeds, tables)


def backward(options: KernelOptions, residuals, gradient):
    qkv, segment_ids, seeds, tables = residuals
    inputs, specs, states, call = lay_out(qkv, segment_ids, seeds, tables, options)
    d_qkv, *d_tables = call(
        backward_kernel,
        in_specs=[*specs, states],
        out_specs=[specs[0], *specs[3:]],
        out_shape=[
            jax.ShapeDtypeStruct(qkv.shape, qkv.dtype),
            *(jax.ShapeDtypeStruct(table.shape, jnp.float32) for table in tables.values()),
        ],
    )(*inputs, gradient)
    named = zip(tables, d_tables, strict=True)
    return d_qkv, None, None, {name: table.astype(tables[name].dtype) for name, table in named}


short_attention.defvjp(forward, backward)


def lay_out(qkv, segment_ids, seeds, tables: Mapping, options: KernelOptions):
    """Return the inputs, their block specs, that of a row's states, and the function that calls a kernel.

    With tables, the grid runs over groups of heads and, for each, over the rows, so that a table stays on the chip.
    """
    B, _, L, width = qkv.shape
    per_program = heads_per_program(width // options.head_size, options.head_size)
    lanes = per_program * options.head_size
    groups = width // lanes

    def block(shape: tuple[int, ...], index_map) -> pl.BlockSpec:
        return pl.BlockSpec(shape, (lambda g, b: index_map(b, g)) if tables else index_map)

    blocks = {
        "bias": block((per_program, 1, 2 * L), lambda b, g: (g, 0, 0)),
        "keys": block((2 * L, lanes), lambda b, g: (0, g)),
        "queries": block((2 * L, lanes), lambda b, g: (0, g)),
    }
    specs = [
        block((1, 3, L, lanes), lambda b, g: (b, 0, 0, g)),
        block((1, 1, L), lambda b, g: (b, 0, 0)),
        block((1, 1, 1, LANES), lambda b, g: (b, g, 0, 0)),
        *(blocks[name] for name in tables),
    ]
    inputs = (qkv, segment_ids[:, None], group_seeds(seeds, per_program), *tables.values())

    def call(kernel, **settings):
        direction = "_backward" if kernel is backward_kernel else ""
        if tables:
            settings["compiler_params"] = pltpu.CompilerParams(vmem_limit_bytes=ROOM)
        return pl.pallas_call(
            partial(kernel, names=tuple(tables), options=options),
            grid=(groups, B) if tables else (B, groups),
            interpret=options.interpret,
            name=("relative_attention" if tables else "short_attention") + direction,
            **settings,
        )

    return inputs, specs, block((1, L, lanes), lambda b, g: (b, 0, g)), call


def group_seeds(seeds, per_program: int):
    """Arrange seeds [B, H] as [B, groups, 1, 128], with the seeds of a group in its first lanes."""
    seeds = seeds.reshape(seeds.shape[0], -1, 1, per_program)
    return jnp.pad(seeds, ((0, 0), (0, 0), (0, 0), (0, LANES - per_program)))


def forward_kernel(qkv, segment_ids, seeds, *refs, names: tuple[str, ...], options: KernelOptions):
    *tables, out = refs
    size, rate = options.head_size, options.rate
    allow, alive = segment_mask(segment_ids[0], options.window)
    for head in range(qkv.shape[3] // size):
        here = slice(head * size, (head + 1) * size)
        q, k, v = load_scaled_qkv(qkv, here, options.scale)
        weights, total = relative_softmax(q, k, head_tables(tables, names, head, here), allow)
        if rate:
            weights = drop_weights(weights, seeds[0, 0, :, head : head + 1], rate)
        mixed = jnp.dot(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
        out[0, :, here] = jnp.where(alive, mixed / total, 0).astype(out.dtype)


def backward_kernel(qkv, segment_ids, seeds, *refs, names: tuple[str, ...], options: KernelOptions):
    tables, (gradient, out, *d_tables) = refs[: len(names)], refs[len(names) :]
    size, rate = options.head_size, options.rate
    allow, alive = segment_mask(segment_ids[0], options.window)

    if d_tables:

        @pl.when(pl.program_id(1) == 0)
        def begin():
            for d_table in d_tables:
                d_table[...] = jnp.zeros_like(d_table)

    for head in range(qkv.shape[3] // size):
        here = slice(head * size, (head + 1) * size)
        q, k, v = load_scaled_qkv(qkv, here, options.scale)
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
                d_table[head] += unskew(d_scores).sum(0, keepdims=True)
            elif name == "keys":
                columns = unskew(rounded).astype(q.dtype)
                d_q += flipped(dot(columns, own[name], 1, 0).astype(q.dtype))
                d_table[:, here] += dot(columns, flipped(q).astype(q.dtype), 0, 0)
            else:
                columns = unskew(d_scores.T.astype(k.dtype)).astype(k.dtype)
                d_k += flipped(dot(columns, own[name], 1, 0).astype(k.dtype))
                d_table[:, here] += dot(columns, flipped(k).astype(k.dtype), 0, 0)
        out[0, 0, :, here] = (d_q * options.scale).astype(out.dtype)
        out[0, 1, :, here] = d_k.astype(out.dtype)
        out[0, 2, :, here] = dot(used.astype(v.dtype), incoming, 0, 0).astype(out.dtype)


def load_scaled_qkv(qkv, here: slice, scale: float):
    q, k, v = (qkv[0, part, :, here] for part in range(3))
    return q * scale, k, v


def head_tables(tables, names: tuple[str, ...], head: int, here: slice) -> dict:
    return {
        name: table[head] if name == "bias" else table[:, here]
        for name, table in zip(names, tables, strict=True)
    }


def relative_softmax(q, k, tables: Mapping, allow):
    """Return unnormalised weights [L, L] and their sums [L, 1]."""
    scores, L = dot(q, k, 1, 1), q.shape[0]
    if "bias" in tables:
        scores += skew(jnp.broadcast_to(tables["bias"], (L, 2 * L)))
    if "keys" in tables:
        scores += skew(dot(q, tables["keys"], 1, 1))
    if "queries" in tables:
        scores += skew(dot(k, tables["queries"], 1, 1)).T
    scores = jnp.where(allow, scores, UNSEEN)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return weights, weights.sum(-1, keepdims=True)


def skew(columns):
    """Arrange [L, 2L] by distance as [L, L] by position: row i starts at column L - 1 - i."""
    L = columns.shape[0]
    return pltpu.roll(columns, L + 1, 1, stride=1, stride_axis=0)[:, :L]


def unskew(by_position):
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


def dot(left, right, left_axis: int, right_axis: int):
    return jax.lax.dot_general(
        left, right, (((left_axis,), (right_axis,)), ((), ())), preferred_element_type=jnp.float32
    )


def segment_mask(segment_ids, window):
    """Return which query may see which key [L, L], and which tokens are real [L, 1], from segment_ids [1, L]."""
    L = segment_ids.shape[1]
    key_segments = jnp.broadcast_to(segment_ids, (L, L))
    query_segments = key_segments.T
    allow = (key_segments == query_segments) & (key_segments > 0)
    if window is not None:
        query, key = (jax.lax.broadcasted_iota(jnp.int32, (L, L), axis) for axis in (0, 1))
        allow = allow & (jnp.abs(query - key) <= window)
    return allow, query_segments[:, :1] > 0


def drop_weights(weights, seed, rate: float):
    """Apply dropout to weights [L, L]."""
    return jnp.where(hash_keep_mask(weights.shape[0], seed, rate), weights * (1 / (1 - rate)), 0)


def hash_keep_mask(L: int, seed, rate: float):
    """Return [L, L] of bool from a seed [1, 1]. The two halves of a 32-bit hash serve the upper and the lower rows."""
    half = L // 2
    query, key = (jax.lax.broadcasted_iota(jnp.int32, (half, L), axis) for axis in (0, 1))
    bits = mix_bits((query * L + key).astype(jnp.uint32) + seed)
    both = jnp.concatenate([bits & jnp.uint32(0xFFFF), bits >> 16], axis=0)
    return both.astype(jnp.int32) < round((1 - rate) * 2**16)
