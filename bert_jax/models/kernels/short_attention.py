"""A Pallas kernel for attention on a TPU, with dropout, for rows that fit on the chip as a whole.

A row of up to 512 tokens needs no online softmax: its scores are computed, normalised, dropped and used without leaving
the chip. The backward pass recomputes them from the queries and keys, so none are stored. Heads are side by side in
the last axis, as the projections write and read them, so nothing is transposed, and no head of 64 numbers is padded to
the 128 lanes.

The random bits of dropout are a hash of a score's position and of a seed for each row and head. They are the same on
any device, including CPUs.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from bert_jax.models.dropout import mix_bits

LANES = 128
MAX_LENGTH = 512
UNSEEN = -1e30  # the score of a masked key


@dataclass(frozen=True)
class KernelOptions:
    """The static arguments of the kernel."""

    head_size: int
    window: int | None = None
    rate: float = 0.0  # the rate of dropout
    interpret: bool = False  # run in Pallas's interpreter, on a CPU
    trains_bias: bool = True  # a bias for each distance has a gradient; that of a fixed one is left at zero


def heads_per_program(heads: int, size: int) -> int:
    """Return how many heads a program computes: as many as fill 256 lanes, or 128; 0 if neither is possible."""
    for count in (256 // size, LANES // size):
        if count and not heads % count and not count * size % LANES:
            return count
    return 0


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def short_attention(qkv, segment_ids, seeds, options: KernelOptions):
    """Map qkv [B, 3, L, H x K], segment_ids [B, L] (0 on padding) and seeds [B, H] to [B, L, H x K]."""
    return forward(qkv, segment_ids, seeds, options)[0]


def forward(qkv, segment_ids, seeds, options: KernelOptions):
    B, _, L, width = qkv.shape
    per_program = heads_per_program(width // options.head_size, options.head_size)
    lanes = per_program * options.head_size
    out = pl.pallas_call(
        partial(forward_kernel, options=options),
        grid=(B, width // lanes),
        in_specs=input_specs(L, lanes),
        out_specs=pl.BlockSpec((1, L, lanes), lambda b, g: (b, 0, g)),
        out_shape=jax.ShapeDtypeStruct((B, L, width), qkv.dtype),
        interpret=options.interpret,
        name="short_attention",
    )(qkv, segment_ids[:, None], group_seeds(seeds, per_program))
    return out, (qkv, segment_ids, seeds)


def backward(options: KernelOptions, residuals, gradient):
    qkv, segment_ids, seeds = residuals
    B, _, L, width = qkv.shape
    per_program = heads_per_program(width // options.head_size, options.head_size)
    lanes = per_program * options.head_size
    out = pl.pallas_call(
        partial(backward_kernel, options=options),
        grid=(B, width // lanes),
        in_specs=[*input_specs(L, lanes), pl.BlockSpec((1, L, lanes), lambda b, g: (b, 0, g))],
        out_specs=pl.BlockSpec((1, 3, L, lanes), lambda b, g: (b, 0, 0, g)),
        out_shape=jax.ShapeDtypeStruct(qkv.shape, qkv.dtype),
        interpret=options.interpret,
        name="short_attention_backward",
    )(qkv, segment_ids[:, None], group_seeds(seeds, per_program), gradient)
    return out, None, None


short_attention.defvjp(forward, backward)


def input_specs(L: int, lanes: int) -> list[pl.BlockSpec]:
    return [
        pl.BlockSpec((1, 3, L, lanes), lambda b, g: (b, 0, 0, g)),
        pl.BlockSpec((1, 1, L), lambda b, g: (b, 0, 0)),
        pl.BlockSpec((1, 1, 1, LANES), lambda b, g: (b, g, 0, 0)),
    ]


def group_seeds(seeds, per_program: int):
    """Arrange seeds [B, H] as [B, groups, 1, 128], with the seeds of a group in its first lanes."""
    seeds = seeds.reshape(seeds.shape[0], -1, 1, per_program)
    return jnp.pad(seeds, ((0, 0), (0, 0), (0, 0), (0, LANES - per_program)))


def forward_kernel(qkv, segment_ids, seeds, out, *, options: KernelOptions):
    size, rate = options.head_size, options.rate
    allow, alive = segment_mask(segment_ids[0], options.window)
    for head in range(qkv.shape[3] // size):
        q, k, v = (qkv[0, part, :, head * size : (head + 1) * size] for part in range(3))
        weights, total = unnormalized_softmax(q * size**-0.5, k, allow)
        if rate:
            weights = drop_weights(weights, seeds[0, 0, :, head : head + 1], rate)
        mixed = jnp.dot(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
        out[0, :, head * size : (head + 1) * size] = jnp.where(alive, mixed / total, 0).astype(out.dtype)


def backward_kernel(qkv, segment_ids, seeds, gradient, out, *, options: KernelOptions):
    size, rate = options.head_size, options.rate
    allow, alive = segment_mask(segment_ids[0], options.window)
    for head in range(qkv.shape[3] // size):
        here = slice(head * size, (head + 1) * size)
        q, k, v = (qkv[0, part, :, here] for part in range(3))
        q = q * size**-0.5
        incoming = jnp.where(alive, gradient[0, :, here], 0)
        weights, total = unnormalized_softmax(q, k, allow)
        weights = weights / total
        seed = seeds[0, 0, :, head : head + 1]
        used = drop_weights(weights, seed, rate) if rate else weights
        d_used = dot(incoming, v, 1, 1)
        d_weights = drop_weights(d_used, seed, rate) if rate else d_used
        d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True))
        d_scores = d_scores.astype(q.dtype)
        out[0, 0, :, here] = (dot(d_scores, k, 1, 0) * size**-0.5).astype(out.dtype)
        out[0, 1, :, here] = dot(d_scores, q, 0, 0).astype(out.dtype)
        out[0, 2, :, here] = dot(used.astype(v.dtype), incoming, 0, 0).astype(out.dtype)


def dot(left, right, left_axis: int, right_axis: int):
    return jax.lax.dot_general(
        left, right, (((left_axis,), (right_axis,)), ((), ())), preferred_element_type=jnp.float32
    )


def unnormalized_softmax(q, k, allow):
    """Return unnormalised weights [L, L] and their sums [L, 1]."""
    scores = jnp.where(allow, dot(q, k, 1, 1), UNSEEN)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return weights, weights.sum(-1, keepdims=True)


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
