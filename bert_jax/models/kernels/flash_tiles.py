"""The tiles that flash_attention.py computes: the scores of a block of queries and a block of keys.

A tile may have the queries along its first axis or along its second, so that its products need no transposition.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from bert_jax.models.dropout import mix_bits
from bert_jax.models.kernels.request import KernelOptions

BLOCK = 64  # queries and keys in a block; 128 were slower on an H200
UNSEEN = -1e30  # the score of a masked key
LOG2_E = math.log2(math.e)  # a GPU computes powers of two


class Row(NamedTuple):
    """What a program reads of its row and head. Outside a kernel, the arrays of all rows and heads."""

    qkv: Any  # [L, 3, K]
    segment_ids: Any  # [L]
    spans: Any  # [L / BLOCK, 2]
    seed: Any  # []
    bias: Any  # [2L - 1] or None
    added: Any  # [L, L] or None
    at: tuple = ()  # the index of the row, in a kernel that reads all rows


class QueryRow(NamedTuple):
    """What the backward pass reads of the queries of its row and head besides."""

    gradient: Any  # [L, K], of the output
    log_sums: Any  # [L], logarithms of the sums of weights, to base 2
    inner: Any  # [L], the sum over keys of a weight times its gradient
    at: tuple = ()


class Tokens(NamedTuple):
    """The tokens of a block, along the first axis of a tile of scores or along the second."""

    positions: Any
    segment_ids: Any


def block(number):
    return pl.ds(number * BLOCK, BLOCK)


def load(row: Row, part: int, number):
    """Return a block of queries (part 0), keys (1) or values (2), [BLOCK, K]."""
    return row.qkv[*row.at, block(number), part, :]


def load_queries(query_row: QueryRow, number, axis: int) -> QueryRow:
    """Return what the backward pass reads of a block of queries, which are along `axis` of a tile."""
    where = *query_row.at, block(number)
    numbers = (along(x[where], axis) for x in (query_row.log_sums, query_row.inner))
    return QueryRow(query_row.gradient[*where, :], *numbers)


def tokens(row: Row, number, axis: int) -> Tokens:
    """Return the tokens of a block, which are along `axis` of a tile."""
    positions = number * BLOCK + jax.lax.iota(jnp.int32, BLOCK)
    return Tokens(along(positions, axis), along(row.segment_ids[*row.at, block(number)], axis))


def along(x, axis: int):
    return jnp.expand_dims(x, 1 - axis)


def dot(left, right, left_axis: int, right_axis: int):
    """Multiply tiles; of float32 in full precision, where a GPU by default rounds to 10 bits."""
    precision = jax.lax.Precision.HIGHEST if left.dtype == jnp.float32 else None
    return jax.lax.dot_general(
        left,
        right,
        (((left_axis,), (right_axis,)), ((), ())),
        precision=precision,
        preferred_element_type=jnp.float32,
    )


def tile_scores(products, row: Row, queries: Tokens, keys: Tokens, options: KernelOptions):
    """Return the scores of a tile, as logarithms to base 2, from the products of queries and keys."""
    scores = products * (options.scale * LOG2_E)
    distances = keys.positions - queries.positions
    if row.bias is not None:
        scores += row.bias[distances + row.bias.shape[0] // 2] * LOG2_E
    if row.added is not None:
        scores += row.added[queries.positions, keys.positions].astype(jnp.float32) * LOG2_E
    allow = queries.segment_ids == keys.segment_ids
    if options.window is not None:
        allow &= abs(distances) <= options.window
    return jnp.where(allow, scores, UNSEEN)


def tile_weights(products, row: Row, queries: Tokens, keys: Tokens, log_sums, options: KernelOptions):
    """Return the attention weights of a tile before dropout, from the logarithms of their sums."""
    return jnp.exp2(tile_scores(products, row, queries, keys, options) - log_sums)


def draw_kept(row: Row, queries: Tokens, keys: Tokens, rate: float):
    """Return which weights of a tile dropout keeps; None if it keeps all."""
    return pair_keep_mask(queries.positions, keys.positions, row.seed[row.at], rate) if rate else None


def pair_keep_mask(queries, keys, seed, rate: float):
    """Return whether dropout keeps the weight of a query and a key, for positions that broadcast."""
    bits = mix_bits(queries.astype(jnp.uint32) + seed) ^ mix_bits(keys.astype(jnp.uint32))
    # The two operands are well mixed, so fewer steps than those of mix_bits suffice for each pair.
    bits = bits * jnp.uint32(0x9E3779B1)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits < jnp.uint32(round((1 - rate) * 2**32))


def hash_kept_pairs(length: int, seed, rate: float):
    """Return the same for all pairs of a row, [L, L]."""
    indices = jnp.arange(length)
    return pair_keep_mask(indices[:, None], indices[None], seed, rate)


def drop(weights, kept, rate: float):
    return weights if kept is None else jnp.where(kept, weights * (1 / (1 - rate)), 0)
