"""Attention: what blocks share of it, for heads side by side in states [B, L, H x K]."""

import numpy as np

from bert_jax.export.context import GraphContext
from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import dense, linear, rotate

PARTS = ("query", "key", "value")


def self_attention(
    scope: Scope, hidden: Value, context: GraphContext, visible: Value | None = None, rotary_index: int = 0
) -> Value:
    """Return the output of attention [B, L, D]. A block may pass what its tokens see, and its rotary table."""
    query, key, value = (split_heads(scope / name, project(scope, hidden, name)) for name in PARTS)
    if context.rotary:
        table = context.rotary[rotary_index]
        query, key = rotate(scope / "query", query, table), rotate(scope / "key", key, table)
    key, value = repeat_heads(scope / "key", key), repeat_heads(scope / "value", value)
    query = scope.add("Mul", query, scope.number(scope.config.head_size**-0.5))
    scores = scope.add("MatMul", query, scope.add("Transpose", key, perm=[0, 1, 3, 2]))
    if context.bias is not None:
        scores = scope.add("Add", scores, context.bias)
    return attend(scope, scores, value, visible or context.visible)


def project(scope: Scope, states: Value, name: str) -> Value:
    """Project states to queries, keys or values [B, L, H x K]."""
    kernel, bias = project_parameters(scope, name)
    return linear(scope / name, states, kernel, bias)


def project_parameters(scope: Scope, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    module, part = "qkv", PARTS.index(name)
    if module not in scope.params:  # several heads for queries share one for keys and values
        module, part = ("query", 0) if name == "query" else ("key_value", part - 1)
    dense, bias = scope.params[module], None
    if "bias" in dense:
        bias = dense["bias"][part].reshape(-1)
    return dense["kernel"][:, part].reshape(dense["kernel"].shape[0], -1), bias


def split_heads(scope: Scope, states: Value) -> Value:
    """Return states [B, L, H x K] as [B, H, L, K]."""
    c = scope.config
    parts = scope.add("Reshape", states, scope.integers(0, 0, -1, c.head_size))
    return scope.add("Transpose", parts, perm=[0, 2, 1, 3])


def repeat_heads(scope: Scope, states: Value) -> Value:
    """Repeat keys or values [B, G, L, K] for the heads of queries that share them: [B, H, L, K]."""
    c = scope.config
    if not c.num_key_value_heads:
        return states
    repeats = c.num_attention_heads // c.num_key_value_heads
    order = np.arange(c.num_attention_heads) // repeats
    return scope.add("Gather", states, scope.integers(*order.tolist()), axis=1)


def attend(scope: Scope, scores: Value, value: Value, visible: Value) -> Value:
    """Average values [B, H, L, K] by the softmax of scores, and project the result [B, L, D]."""
    weights = scope.add("Softmax", scope.add("Add", scores, visible), axis=-1)
    mixed = scope.add("Transpose", scope.add("MatMul", weights, value), perm=[0, 2, 1, 3])
    merged = scope.add("Reshape", mixed, scope.integers(0, 0, scope.config.hidden_size))
    return dense(scope / "out", merged, input_axes=2)
