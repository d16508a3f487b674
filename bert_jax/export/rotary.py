"""Rotary position embeddings."""

from typing import NamedTuple

import numpy as np

from bert_jax.export.graph import Scope, Value


class RotaryTable(NamedTuple):
    """Cosines and sines by position and pair of numbers, [L, K / 2]."""

    cosine: Value
    sine: Value


def row_positions(scope: Scope, length: Value) -> Value:
    """Return 0, 1, 2 ... L - 1 in float32, [L]."""
    stop = scope.add("Squeeze", scope.to_float(length))
    return scope.add("Range", scope.number(0), stop, scope.number(1))


def rotary_tables(scope: Scope, length: Value) -> tuple[RotaryTable, ...]:
    c = scope.config
    column = scope.add("Unsqueeze", row_positions(scope, length), scope.integers(1))
    thetas = {"global": c.rotary.theta, "local": c.rotary.local_theta}
    tables = []
    for name, theta in thetas.items():
        if theta:
            place = scope / name
            frequency = 1 / theta ** (np.arange(0, c.head_size, 2) / c.head_size)
            angles = place.add("Mul", column, place.weight("frequency", frequency.astype(np.float32)))
            tables.append(RotaryTable(place.add("Cos", angles), place.add("Sin", angles)))
    return tuple(tables)


def rotate(scope: Scope, states: Value, table: RotaryTable) -> Value:
    """Rotate queries or keys [B, H, L, K]: number i of a head forms a pair with number i + K / 2."""
    first, second = scope.split(states, axis=-1)
    turned_first = scope.add(
        "Sub", scope.add("Mul", first, table.cosine), scope.add("Mul", second, table.sine)
    )
    turned_second = scope.add(
        "Add", scope.add("Mul", second, table.cosine), scope.add("Mul", first, table.sine)
    )
    return scope.add("Concat", turned_first, turned_second, axis=-1)
