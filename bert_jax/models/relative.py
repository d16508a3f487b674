"""Attention's relative terms: what a score gains by how far apart query and key stand.

A distance is the key's place minus the query's. Of L places there are 2L - 1, from 1 - L up, in the order of the
columns c here: the key stands c - (L - 1) places behind the query. Packs need no more: each stands in one piece.
"""

import math
from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bert_jax.models.config import RelativeConfig
from bert_jax.models.mesh import TENSOR, platform
from bert_jax.models.product import product


@flax.struct.dataclass
class Relative:
    """The terms of one layer, and the states that it makes them of."""

    bias: Any = None  # [H, 2L - 1], a number for each head and distance
    states: Any = None  # [R, D], of the distances that differ; each layer projects them to
    keys: Any = None  # [R, H, K], of which a query takes the product with itself, and to
    queries: Any = None  # [R, H, K], of which a key does
    rows: Any = None  # [2L - 1], the row of each distance in those

    @property
    def products(self) -> int:
        """How many products a score is the sum of: its variance grows with them, and its scale makes up for it."""
        return 1 + (self.keys is not None) + (self.queries is not None)


# How it lies on a mesh.
HEADS_APART = PartitionSpec(None, TENSOR, None)
SPECS = Relative(
    bias=PartitionSpec(TENSOR, None), keys=HEADS_APART, queries=HEADS_APART, rows=PartitionSpec()
)


def row_of_distances(config: RelativeConfig, length: int) -> np.ndarray:
    """The row of the table for each distance, [2 x length - 1].

    >>> row_of_distances(RelativeConfig(("bias",), buckets=8, farthest=16), 4).tolist()
    [2, 2, 1, 0, 5, 6, 6]
    >>> row_of_distances(RelativeConfig(("keys",), farthest=2), 4).tolist()
    [3, 3, 3, 2, 1, 0, 0]
    """
    distances = np.arange(1 - length, length)
    return of_bias(config, distances) if config.is_bias else of_states(config, distances)


def of_bias(config: RelativeConfig, distances: np.ndarray) -> np.ndarray:
    """T5's: half of the buckets for keys behind the query; of each half the first half has a distance to itself, and
    the others grow with the logarithm up to the farthest."""
    half = config.buckets // 2
    exact, far = half // 2, np.abs(distances)
    # In float32, as the reference: at the edges of buckets the last digit decides.
    with np.errstate(divide="ignore"):
        logs = np.log(far.astype(np.float32) / np.float32(exact)) / np.float32(
            math.log(config.farthest / exact)
        )
    grown = exact + np.where(far < exact, 0, logs * np.float32(half - exact)).astype(int)
    return np.where(far < exact, far, np.minimum(grown, half - 1)) + half * (distances > 0)


def of_states(config: RelativeConfig, distances: np.ndarray) -> np.ndarray:
    """DeBERTa's: places before the query have the upper rows; with buckets, near distances have a row to themselves,
    and far ones share it with those about as far."""
    before, span = -distances, config.span
    places = before
    if config.buckets:
        half, far = span // 2, np.maximum(np.abs(before), span // 2 - 1)
        reach = np.log(np.float32((config.farthest - 1) / half))
        logs = (
            np.ceil(np.log(far.astype(np.float32) / np.float32(half)) / reach * np.float32(half - 1)) + half
        )
        places = np.where(far <= half, before, logs * np.sign(before)).astype(int)
    return np.clip(places + span, 0, 2 * span - 1)


def scores(relative: Relative, q, k, scale: float, dtype: str):
    """What scores of q, which is scaled already, and k [B, L, H, K] gain: float32 [H, L, L] or [B, H, L, L]."""
    if relative.bias is not None:
        return by_distance(relative.bias)
    gained = []
    if relative.keys is not None:
        gained.append(at_distance(q, relative.keys, relative.rows, dtype))
    if relative.queries is not None:
        of_keys = at_distance(k, relative.queries * scale, relative.rows[::-1], dtype)
        gained.append(of_keys.swapaxes(2, 3))
    return sum(gained)


def tables(relative: Relative, scale: float, dtype: str) -> dict:
    """The terms as relative_attention.py reads them."""
    if relative.bias is not None:
        return {"bias": jnp.pad(relative.bias.astype(jnp.float32), ((0, 0), (0, 1)))[:, None]}
    arranged = {}
    if relative.keys is not None:
        arranged["keys"] = relative.keys[relative.rows]
    if relative.queries is not None:
        arranged["queries"] = (relative.queries * scale)[relative.rows[::-1]]
    merged = {name: table.reshape(len(table), -1) for name, table in arranged.items()}
    return {name: jnp.pad(table, ((0, 1), (0, 0))).astype(dtype) for name, table in merged.items()}


def by_distance(columns):
    """[..., 2L - 1] -> [..., L, L], for each query and key the column of their distance.

    >>> by_distance(jnp.array([1, 2, 3, 4, 5])).tolist()
    [[3, 4, 5], [2, 3, 4], [1, 2, 3]]
    """
    *outer, width = columns.shape
    L = (width + 1) // 2
    # Rows of 2L, read in steps of 2L - 1: each begins one column earlier than the row before it.
    repeated = jnp.broadcast_to(columns[..., None, :], (*outer, L, width))
    padded = jnp.pad(repeated, [(0, 0)] * (len(outer) + 1) + [(0, 1)])
    steps = padded.reshape(*outer, 2 * L * L)[..., L - 1 : L - 1 + L * width]
    return steps.reshape(*outer, L, width)[..., :L]


def at_distance(states, table, rows, dtype: str):
    """[B, H, L, L]: the product of each state [B, L, H, K] with the row of the table [R, H, K] for each other place."""
    if platform() == "tpu":
        return by_selection(states, table, rows, dtype)
    return by_gathering(states, table, rows, dtype)


def by_selection(states, table, rows, dtype: str):
    """A TPU gathers number by number; it is faster to multiply by zeros and ones."""
    L = states.shape[1]
    products = product("blhk,rhk->bhlr", states, table, dtype, "float32")
    selected = jax.nn.one_hot(rows[columns(L)], table.shape[0], dtype=dtype)
    return product("bhlr,lmr->bhlm", products, selected, dtype, "float32")


def columns(length: int) -> np.ndarray:
    """The column of the distance from each place to each other, [L, L]."""
    places = np.arange(length)
    return places[None, :] - places[:, None] + length - 1


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def by_gathering(states, table, rows, dtype: str):
    products = product("blhk,rhk->bhlr", states, table, dtype, "float32")
    return take(products, rows[columns(states.shape[1])])


def by_gathering_forward(states, table, rows, dtype):
    return by_gathering(states, table, rows, dtype), (states, table, rows)


def by_gathering_backward(dtype, residuals, gradient):
    """JAX's own rule would add up number by number; here each distance has a column, so that nothing is added up
    before the products."""
    states, table, rows = residuals
    L = states.shape[1]
    others = (
        np.arange(L)[:, None] + np.arange(2 * L - 1) - (L - 1)
    )  # the place at each distance from each place
    there = (others >= 0) & (others < L)
    of_columns = jnp.where(there, take(gradient, np.clip(others, 0, L - 1)), 0)
    of_states = product("bhlc,chk->blhk", of_columns, table[rows], dtype, states.dtype)
    of_table = product("bhlc,blhk->chk", of_columns, states, dtype, "float32")
    return of_states, jnp.zeros(table.shape).at[rows].add(of_table).astype(table.dtype), None


by_gathering.defvjp(by_gathering_forward, by_gathering_backward)


def take(values, columns):
    """[B, H, L, C], of each row the numbers in columns [L, N]: [B, H, L, N]."""
    B, H, L, C = values.shape
    places = np.arange(L)[:, None] * C + columns
    taken = jnp.take(values.reshape(B * H, L * C), places.reshape(-1), axis=1, mode="clip")
    return taken.reshape(B, H, *columns.shape)
