"""The layers that blocks and heads consist of. Activations have the forms that ONNX Runtime fuses to one operator."""

import math
from collections.abc import Callable

import numpy as np

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


def linear(scope: Scope, states: Value, kernel: np.ndarray, bias: np.ndarray | None = None) -> Value:
    """Multiply states [..., D] by a kernel [D, E] and add a bias [E]."""
    product = scope.add("MatMul", states, scope.weight("kernel", kernel))
    return product if bias is None else scope.add("Add", product, scope.weight("bias", bias))


def dense(scope: Scope, states: Value, input_axes: int = 1) -> Value:
    """Apply a dense layer, whose kernel has `input_axes` axes of inputs before those of outputs."""
    kernel, bias = scope.params["kernel"], scope.params.get("bias")
    kernel = kernel.reshape(math.prod(kernel.shape[:input_axes]), -1)
    return linear(scope, states, kernel, None if bias is None else bias.reshape(-1))


def norm(scope: Scope, states: Value) -> Value:
    if scope.config.rms_norm:
        return rms_norm(scope, states)
    parameters = [scope.weight(name) for name in ("scale", "bias") if name in scope.params]
    return scope.add("LayerNormalization", states, *parameters, axis=-1, epsilon=scope.config.layer_norm_eps)


def rms_norm(scope: Scope, states: Value) -> Value:
    square = scope.add("ReduceMean", scope.add("Mul", states, states), axes=[-1], keepdims=1)
    root = scope.add("Sqrt", scope.add("Add", square, scope.number(scope.config.layer_norm_eps)))
    return scope.add("Mul", scope.add("Div", states, root), scope.weight("scale"))


def feed_forward(scope: Scope, hidden: Value) -> Value:
    c, activation = scope.config, ACTIVATIONS[scope.config.hidden_act]
    if not c.gated:
        return dense(scope / "out", activation(scope, dense(scope / "in", hidden)))
    both = (scope / "gated").params
    halves = []
    for part, name in enumerate(("activated", "gate")):
        bias = both["bias"][part] if "bias" in both else None
        halves.append(linear(scope / name, hidden, both["kernel"][:, part], bias))
    return dense(scope / "out", scope.add("Mul", activation(scope, halves[0]), halves[1]))
