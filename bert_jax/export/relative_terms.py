"""Relative terms of attention, for rows of any length up to the longest: see models/relative_terms.py."""

from dataclasses import dataclass

import numpy as np

from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import norm
from bert_jax.models.relative_terms import row_of_distances


@dataclass(frozen=True)
class DistanceStates:
    """The 2L - 1 distances of L positions, and the embeddings that each layer projects."""

    length: Value  # L, [1]
    count: Value  # 2L - 1, [1]
    rows: Value  # [2L - 1], the row of each distance in the table of embeddings or biases
    reversed_rows: Value  # the same from the last distance to the first
    states: Value  # [R, D] embeddings, or [R, H] biases, of the R groups of distances that occur


def make_distances(scope: Scope, length: Value) -> DistanceStates:
    c, r = scope.config, scope.config.relative
    longest = c.max_position_embeddings
    met, rows = np.unique(row_of_distances(r, longest), return_inverse=True)
    states = scope.weight("table", scope.params["table"][met])
    if r.normalized:
        states = norm(scope / "norm", states)
    count = scope.add("Sub", scope.add("Add", length, length), scope.integers(1))
    first = scope.add("Sub", scope.integers(longest), length)

    def middle(name: str, of_longest: np.ndarray) -> Value:
        """The distances of a shorter row are in the middle of those of the longest."""
        end = scope.add("Add", first, count)
        return scope.add(
            "Slice", scope.weight(name, of_longest.astype(np.int64)), first, end, scope.integers(0)
        )

    return DistanceStates(length, count, middle("rows", rows), middle("reversed_rows", rows[::-1]), states)


def bias_of_distances(scope: Scope, distances: DistanceStates) -> Value:
    """Return the bias of T5's kind for all layers, [1, H, L, L]."""
    by_distance = scope.add("Transpose", scope.add("Gather", distances.states, distances.rows), perm=[1, 0])
    by_query = scope.add("Unsqueeze", by_distance, scope.integers(0, 2))
    shape = scope.add("Concat", scope.integers(1, 1), distances.length, scope.integers(1), axis=0)
    return arrange_by_position(scope, scope.add("Expand", by_query, shape), distances)


def multiply_by_distance(
    scope: Scope, states: Value, table: Value, rows: Value, distances: DistanceStates
) -> Value:
    """Multiply states [B, H, L, K] by the rows of a table [H, R, K] for the distance to each position: [B, H, L, L]."""
    by_distance = scope.add("Transpose", scope.add("Gather", table, rows, axis=1), perm=[0, 2, 1])
    return arrange_by_position(scope, scope.add("MatMul", states, by_distance), distances)


def arrange_by_position(scope: Scope, columns: Value, distances: DistanceStates) -> Value:
    """Arrange [B, H, L, 2L - 1] by distance as [B, H, L, L] by query and key."""
    # Rows of 2L numbers, read in steps of 2L - 1: each row starts one column earlier than the row before.
    padded = scope.add("Pad", columns, scope.integers(0, 0, 0, 0, 0, 0, 0, 1))
    flat = scope.add("Reshape", padded, scope.integers(0, 0, -1))
    start = scope.add("Sub", distances.length, scope.integers(1))
    end = scope.add("Add", start, scope.add("Mul", distances.length, distances.count))
    steps = scope.add("Slice", flat, start, end, scope.integers(2))
    shape = scope.add("Concat", scope.integers(0, 0, -1), distances.count, axis=0)
    rows = scope.add("Reshape", steps, shape)
    return scope.add("Slice", rows, scope.integers(0), distances.length, scope.integers(3))
