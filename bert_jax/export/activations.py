"""Activations, in the forms that ONNX Runtime fuses to one operator."""

import math
from collections.abc import Callable

from bert_jax.export.graph import Scope, Value


def gelu(scope: Scope, x: Value) -> Value:
    cdf = scope.add("Erf", scope.add("Div", x, scope.number(math.sqrt(2))))
    return scope.add("Mul", scope.add("Mul", x, scope.add("Add", cdf, scope.number(1))), scope.number(0.5))


def gelu_tanh(scope: Scope, x: Value) -> Value:
    cubed = scope.add("Pow", x, scope.number(3))
    inner = scope.add("Add", x, scope.add("Mul", cubed, scope.number(0.044715)))
    cdf = scope.add("Tanh", scope.add("Mul", inner, scope.number(math.sqrt(2 / math.pi))))
    return scope.add("Mul", scope.add("Mul", x, scope.add("Add", cdf, scope.number(1))), scope.number(0.5))


def silu(scope: Scope, x: Value) -> Value:
    return scope.add("Mul", x, scope.add("Sigmoid", x))


ACTIVATIONS: dict[str, Callable[[Scope, Value], Value]] = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": lambda scope, x: scope.add("Relu", x),
    "silu": silu,
    "tanh": lambda scope, x: scope.add("Tanh", x),
    "none": lambda scope, x: x,
}
