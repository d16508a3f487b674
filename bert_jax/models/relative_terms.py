"""Relative terms of attention: what the distance between query and key adds to their score.

A distance is the key's position minus the query's. L positions have 2L - 1 distances, from 1 - L to L - 1. Column c of
an array by distance is for distance c - (L - 1). Packs need nothing else, because each is contiguous.
"""

import math
from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bert_jax.models.einsum import mixed_einsum
from bert_jax.models.encoder_config import RelativeConfig
from bert_jax.models.mesh import TENSOR, platform


@flax.struct.dataclass
class RelativeTerms:
    """The terms of a layer, and the embeddings that it projects them from."""

    bias: Any = None  # [H, 2L - 1], a bias for each head and distance
    states: Any = None  # [R, D], embeddings of the R groups of distances that occur; each layer projects them
    keys: Any = None  # [R, H, K], keys of distances, for the queries of tokens
    queries: Any = None  # [R, H, K], queries of distances, for the keys of tokens
    rows: Any = None  # [2L - 1], the row of each distance in these arrays
    is_fixed: bool = flax.struct.field(pytree_node=False, default=False)  # the bias is not trained

    @property
    def products(self) -> int:
        """The number of products in a score. Its variance grows with them, and the scale compensates for that."""
        return 1 + (self.keys is not None) + (self.queries is not None)


# How the terms are split over a mesh.
HEADS_APART = PartitionSpec(None, TENSOR, None)
SPECS = RelativeTerms(
    bias=PartitionSpec(TENSOR, None), keys=HEADS_APART, queries=HEADS_APART, rows=PartitionSpec()
)


def row_of_distances(config: RelativeConfig, length: int) -> np.ndarray:
    """Return the row of the table of embeddings or biases for each distance, [2 x length - 1].

    >>> row_of_distances(RelativeConfig(("bias",), buckets=8, max_distance=16), 4).tolist()
    [2, 2, 1, 0, 5, 6, 6]
    >>> row_of_distances(RelativeConfig(("keys",), max_distance=2), 4).tolist()
    [3, 3, 3, 2, 1, 0, 0]
    """
    distances = np.arange(1 - length, length)
    return t5_rows(config, distances) if config.is_bias else deberta_rows(config, distances)


def row_of_open_distances(config: RelativeConfig, length, longest: int):
    """Return the same as an array of JAX for a length that is known only later, at most `longest`."""
    return jnp.asarray(row_of_distances(config, longest))[longest - length : longest + length - 1]


def t5_rows(config: RelativeConfig, distances: np.ndarray) -> np.ndarray:
    """Return T5's bucket of each distance.

    The upper half of the buckets is for keys after the query. In each half, the first half of the buckets holds one
    distance each, and the other buckets grow logarithmically up to the farthest distance.
    """
    half = config.buckets // 2
    exact, far = half // 2, np.abs(distances)
    # In float32, like the reference: at the edges of buckets the last digit decides.
    with np.errstate(divide="ignore"):
        logs = np.log(far.astype(np.float32) / np.float32(exact)) / np.float32(
            math.log(config.max_distance / exact)
        )
    grown = exact + np.where(far < exact, 0, logs * np.float32(half - exact)).astype(int)
    return np.where(far < exact, far, np.minimum(grown, half - 1)) + half * (distances > 0)


def deberta_rows(config: RelativeConfig, distances: np.ndarray) -> np.ndarray:
    """Return DeBERTa's row of each distance.

    The upper rows are for keys before the query. With buckets, each near distance has its own row, and far distances
    share rows on a logarithmic scale.
    """
    offsets, span = -distances, config.span
    grouped = offsets
    if config.buckets:
        half, far = span // 2, np.maximum(np.abs(offsets), span // 2 - 1)
        reach = np.log(np.float32((config.max_distance - 1) / half))
        logs = (
            np.ceil(np.log(far.astype(np.float32) / np.float32(half)) / reach * np.float32(half - 1)) + half
        )
        grouped = np.where(far <= half, offsets, logs * np.sign(offsets)).astype(int)
    return np.clip(grouped + span, 0, 2 * span - 1)


def relative_scores(relative: RelativeTerms, q, k, scale: float, dtype: str):
    """Return what to add to the scores of q, already scaled, and k [B, L, H, K]: float32 [H, L, L] or [B, H, L, L]."""
    if relative.bias is not None:
        return expand_distances(relative.bias)
    gained = []
    if relative.keys is not None:
        gained.append(multiply_by_distance(q, relative.keys, relative.rows, dtype))
    if relative.queries is not None:
        key_scores = multiply_by_distance(k, relative.queries * scale, relative.rows[::-1], dtype)
        gained.append(key_scores.swapaxes(2, 3))
    return sum(gained)


def kernel_tables(relative: RelativeTerms, scale: float, dtype: str) -> dict:
    """Return the terms in the form that short_attention.py reads."""
    if relative.bias is not None:
        return {"bias": jnp.pad(relative.bias.astype(jnp.float32), ((0, 0), (0, 1)))[:, None]}
    arranged = {}
    if relative.keys is not None:
        arranged["keys"] = relative.keys[relative.rows]
    if relative.queries is not None:
        arranged["queries"] = (relative.queries * scale)[relative.rows[::-1]]
    merged = {name: table.reshape(len(table), -1) for name, table in arranged.items()}
    return {name: jnp.pad(table, ((0, 1), (0, 0))).astype(dtype) for name, table in merged.items()}


# ALiBi: scores fall linearly with the distance between two tokens, at a slope of its own for each head. The paper's
# decoders see only earlier tokens. For encoders, which see both sides, the bias is symmetric.


def head_slopes(heads: int) -> np.ndarray:
    """Return the slope of each head, [H].

    For a power of two they are a geometric series. Other numbers of heads have the slopes of the power of two below,
    then every second one of the power of two above, beginning with the first, as in the paper's code.

    >>> head_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> head_slopes(6).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    """
    below = 1 << (heads.bit_length() - 1)
    own = 2.0 ** (-8 * np.arange(1, below + 1) / below)
    between = 2.0 ** (-8 * np.arange(1, 2 * below + 1, 2) / (2 * below))
    return np.concatenate([own, between[: heads - below]])


def alibi_terms(heads: int, length) -> RelativeTerms:
    """Return the bias of each head and distance, for rows of `length` tokens, which an export leaves open."""
    distances = abs(range_of(2 * length - 1) - (length - 1))
    slopes = np.asarray(head_slopes(heads), np.float32)
    return RelativeTerms(bias=-slopes[:, None] * jnp.asarray(distances, jnp.float32), is_fixed=True)


def expand_distances(columns, queries: int | None = None):
    """Arrange [..., 2L - 1] by distance as [..., L, L] by query and key, or only some queries in a row: [..., queries,
    L] from the distances that these meet.

    >>> expand_distances(jnp.array([1, 2, 3, 4, 5])).tolist()
    [[3, 4, 5], [2, 3, 4], [1, 2, 3]]
    >>> expand_distances(jnp.array([1, 2, 3, 4]), queries=2).tolist()
    [[2, 3, 4], [1, 2, 3]]
    """
    *outer, width = columns.shape
    Q = (width + 1) // 2 if queries is None else queries
    # Read rows of one number more in steps of `width`: each row starts one column earlier than the row before.
    repeated = jnp.broadcast_to(columns[..., None, :], (*outer, Q, width))
    padded = jnp.pad(repeated, [(0, 0)] * (len(outer) + 1) + [(0, 1)])
    steps = padded.reshape(*outer, Q * (width + 1))[..., Q - 1 : Q - 1 + Q * width]
    return steps.reshape(*outer, Q, width)[..., : width + 1 - Q]


def multiply_by_distance(states, table, rows, dtype: str):
    """Multiply states [B, L, H, K] by the rows of a table [R, H, K] for the distance to each position: [B, H, L, L]."""
    if platform() == "tpu":
        return multiply_and_select(states, table, rows, dtype)
    return multiply_and_gather(states, table, rows, dtype)


def multiply_and_select(states, table, rows, dtype: str):
    """Select columns by products with zeros and ones, because a TPU gathers numbers one by one."""
    L = states.shape[1]
    products = mixed_einsum("blhk,rhk->bhlr", states, table, dtype, "float32")
    selected = jax.nn.one_hot(rows[distance_columns(L)], table.shape[0], dtype=dtype)
    return mixed_einsum("bhlr,lmr->bhlm", products, selected, dtype, "float32")


def distance_columns(length):
    """Return the column of the distance from each position to each other, [L, L]."""
    positions = range_of(length)
    return positions[None, :] - positions[:, None] + length - 1


def range_of(length):
    """Return 0, 1, 2 ... as a constant or, if the length is known only later, as an array of JAX."""
    return np.arange(length) if isinstance(length, int) else jnp.arange(length)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def multiply_and_gather(states, table, rows, dtype: str):
    products = mixed_einsum("blhk,rhk->bhlr", states, table, dtype, "float32")
    return take_columns(products, rows[distance_columns(states.shape[1])])


def multiply_and_gather_backward(dtype, residuals, gradient):
    """Compute the gradients with a column for each distance, so that products do all the sums.

    JAX's own rule would scatter and add numbers one by one.
    """
    states, table, rows = residuals
    L = states.shape[1]
    # The position at each distance from each position.
    others = np.arange(L)[:, None] + np.arange(2 * L - 1) - (L - 1)
    there = (others >= 0) & (others < L)
    column_gradient = jnp.where(there, take_columns(gradient, np.clip(others, 0, L - 1)), 0)
    state_gradient = mixed_einsum("bhlc,chk->blhk", column_gradient, table[rows], dtype, states.dtype)
    table_gradient = mixed_einsum("bhlc,blhk->chk", column_gradient, states, dtype, "float32")
    return state_gradient, jnp.zeros(table.shape).at[rows].add(table_gradient).astype(table.dtype), None


multiply_and_gather.defvjp(
    lambda states, table, rows, dtype: (
        multiply_and_gather(states, table, rows, dtype),
        (states, table, rows),
    ),
    multiply_and_gather_backward,
)


def take_columns(values, columns):
    """Take the columns [L, N] of each row of values [B, H, L, C]: [B, H, L, N]."""
    B, H, L, C = values.shape
    indices = range_of(L)[:, None] * C + columns
    taken = jnp.take(values.reshape(B * H, L * C), indices.reshape(-1), axis=1, mode="clip")
    return taken.reshape(B, H, *columns.shape)
