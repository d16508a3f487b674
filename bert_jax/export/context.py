"""What all layers of an encoder share, as values of the graph."""

from dataclasses import dataclass, replace

import numpy as np

from bert_jax.export import relative_terms
from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import ConvolvedGraph, RotaryTable, rotary_tables, row_positions
from bert_jax.export.relative_terms import DistanceStates
from bert_jax.models.relative_terms import head_slopes

LOWEST = float(np.finfo(np.float32).min)  # added to the scores of what is not seen


@dataclass(frozen=True)
class GraphContext:
    length: Value  # L, [1]
    visible: Value  # [B, 1, 1, L], 0 for real tokens and LOWEST for padding: what attention adds to scores
    nearby: Value | None = None  # [B, 1, L, L], the same for tokens in the window of local attention
    rotary: tuple[RotaryTable, ...] = ()  # for each sort of layer, see models/rotary.py
    distances: DistanceStates | None = None  # if there are relative terms
    bias: Value | None = None  # [1, H, L, L], of relative terms that are one bias for all layers, or of ALiBi
    convolved: ConvolvedGraph | None = None  # what is added to the output of the first layer


def make_context(scope: Scope, attention_mask: Value) -> GraphContext:
    c = scope.config
    length = scope.add("Shape", attention_mask, start=1, end=2)
    visible = padding_bias(scope, attention_mask)
    context = GraphContext(length, visible)
    if window := c.local_attention.window:
        context = replace(context, nearby=nearby_bias(scope, visible, length, window))
    if c.rotary.theta:
        context = replace(context, rotary=rotary_tables(scope / "rotary", length))
    if c.positions == "alibi":
        context = replace(context, bias=alibi_bias(scope / "alibi", length))
    if c.relative.terms:
        distances = relative_terms.make_distances(scope / "distances", length)
        context = replace(context, distances=distances)
        if c.relative.is_bias:
            context = replace(context, bias=relative_terms.bias_of_distances(scope / "distances", distances))
    return context


def padding_bias(scope: Scope, attention_mask: Value) -> Value:
    mask = scope.add("Unsqueeze", attention_mask, scope.integers(1, 2))
    padded = scope.add("Sub", scope.number(1), scope.to_float(mask))
    return scope.add("Mul", padded, scope.number(LOWEST))


def nearby_bias(scope: Scope, visible: Value, length: Value, window: int) -> Value:
    """Return what attention adds to scores if tokens see only those at most `window` positions away, [B, 1, L, L]."""
    distance = distances_apart(scope, length)
    near = scope.add("LessOrEqual", distance, scope.number(window))
    return scope.add("Min", visible, scope.add("Where", near, scope.number(0), scope.number(LOWEST)))


def alibi_bias(scope: Scope, length: Value) -> Value:
    """Return what ALiBi adds to the scores of each head, which fall linearly with the distance, [1, H, L, L]."""
    slopes = np.asarray(-head_slopes(scope.config.num_attention_heads), np.float32)
    falling = scope.weight("slopes", slopes[None, :, None, None])
    return scope.add("Mul", falling, distances_apart(scope, length))


def distances_apart(scope: Scope, length: Value) -> Value:
    """Return how many positions lie between each query and key, in float32 [L, L]."""
    positions = row_positions(scope, length)
    rows, columns = (scope.add("Unsqueeze", positions, scope.integers(axis)) for axis in (1, 0))
    return scope.add("Abs", scope.add("Sub", rows, columns))
