"""Pooling: one vector for each text from the hidden states of its tokens."""

from collections.abc import Callable

from bert_jax.core.errors import check_name
from bert_jax.export.context import LOWEST
from bert_jax.export.graph import Scope, Value
from bert_jax.hub.sparse_encoder import SparseSettings

SMALLEST_NORM = 1e-12  # of vectors that are scaled to length 1

# Each function takes hidden states [B, L, D] and the mask of real tokens in float32 [B, L].


def mean(scope: Scope, hidden: Value, real: Value) -> Value:
    return weighted_sum(scope, hidden, scope.add("Div", real, count(scope, real)))


def mean_sqrt_length(scope: Scope, hidden: Value, real: Value) -> Value:
    return weighted_sum(scope, hidden, scope.add("Div", real, scope.add("Sqrt", count(scope, real))))


def weighted_mean(scope: Scope, hidden: Value, real: Value) -> Value:
    """Weigh each token by its position in the text, from 1."""
    weights = scope.add("Mul", real, positions_from_one(scope, real))
    return weighted_sum(scope, hidden, scope.add("Div", weights, count(scope, weights)))


def first_token(scope: Scope, hidden: Value, real: Value) -> Value:
    return scope.add("Gather", hidden, scope.index(0), axis=1)


def last_token(scope: Scope, hidden: Value, real: Value) -> Value:
    is_last = scope.add("Equal", positions_from_one(scope, real), count(scope, real))
    return weighted_sum(scope, hidden, scope.add("Mul", real, scope.to_float(is_last)))


def maximum(scope: Scope, hidden: Value, real: Value) -> Value:
    is_real = scope.to_bool(scope.add("Unsqueeze", real, scope.integers(2)))
    visible = scope.add("Where", is_real, hidden, scope.number(LOWEST))
    return scope.add("ReduceMax", visible, axes=[1], keepdims=0)


POOLINGS: dict[str, Callable[[Scope, Value, Value], Value]] = {
    "mean": mean,
    "cls": first_token,
    "max": maximum,
    "mean_sqrt_len": mean_sqrt_length,
    "weighted_mean": weighted_mean,
    "last": last_token,
}


def pool(scope: Scope, hidden: Value, attention_mask: Value, how: str) -> Value:
    """Pool hidden states [B, L, D] to a vector for each text [B, D]."""
    check_name(how, POOLINGS, "pooling with an ONNX form")
    return POOLINGS[how](scope, hidden, scope.to_float(attention_mask))


def pool_logits(scope: Scope, logits: Value, attention_mask: Value, sparse: SparseSettings) -> Value:
    """Pool the logits of tokens [B, L, V] to a vector for each text [B, V]."""

    def activate(weights: Value) -> Value:
        for _ in sparse.activation.split("_"):  # log1p_relu has two logarithms
            weights = scope.add("Log", scope.add("Add", weights, scope.number(1)))
        return weights

    is_real = scope.to_bool(scope.add("Unsqueeze", attention_mask, scope.integers(2)))
    weights = scope.add("Where", is_real, scope.add("Relu", logits), scope.number(0))
    if sparse.pooling == "max":
        return activate(scope.add("ReduceMax", weights, axes=[1], keepdims=0))
    return scope.add("ReduceSum", activate(weights), scope.integers(1), keepdims=0)


def weighted_sum(scope: Scope, hidden: Value, weights: Value) -> Value:
    product = scope.add("MatMul", scope.add("Unsqueeze", weights, scope.integers(1)), hidden)
    return scope.add("Squeeze", product, scope.integers(1))


def count(scope: Scope, real: Value) -> Value:
    """Return the sum of each row, at least 1."""
    total = scope.add("ReduceSum", real, scope.integers(1), keepdims=1)
    return scope.add("Max", total, scope.number(1))


def positions_from_one(scope: Scope, real: Value) -> Value:
    return scope.add("CumSum", real, scope.index(1))


def normalize(scope: Scope, vectors: Value) -> Value:
    """Scale vectors [..., D] to length 1."""
    norm = scope.add("ReduceL2", vectors, axes=[-1], keepdims=1)
    return scope.add("Div", vectors, scope.add("Max", norm, scope.number(SMALLEST_NORM)))
