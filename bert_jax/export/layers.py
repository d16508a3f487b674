"""The layers that blocks and heads consist of. Activations have the forms that ONNX Runtime fuses to one operator."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bert_jax.export.graph import Scope, Value
from bert_jax.models.sinusoids import sinusoidal_table


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


def embed(scope: Scope, inputs: Mapping[str, Value]) -> Value:
    """Return the sum of token, position and segment embeddings, normalised and projected as the config says."""
    c = scope.config
    states = scope.add("Gather", scope.weight("words"), inputs["input_ids"])
    if c.positions in ("learned", "sinusoidal"):
        states = scope.add("Add", states, position_embeddings(scope, inputs["input_ids"]))
    if c.type_vocab_size == 1:  # every token has the type 0
        states = scope.add("Add", states, scope.weight("token_types"))
    elif c.type_vocab_size:
        types = scope.add("Gather", scope.weight("token_types"), inputs["token_type_ids"])
        states = scope.add("Add", states, types)
    states = norm(scope / "norm", states) if c.embedding_norm else states
    return dense(scope / "projection", states) if c.embedding_size else states


def position_embeddings(scope: Scope, input_ids: Value) -> Value:
    """Return the embeddings of positions 0, 1, 2 ..., [L, D]."""
    c = scope.config
    length = scope.add("Shape", input_ids, start=1, end=2)
    computed = None
    if c.positions == "sinusoidal":
        computed = sinusoidal_table(c.max_position_embeddings, c.embedding_width)
    return scope.add(
        "Slice", scope.weight("positions", computed), scope.integers(0), length, scope.integers(0)
    )


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
            part = scope / name
            frequency = 1 / theta ** (np.arange(0, c.head_size, 2) / c.head_size)
            angles = part.add("Mul", column, part.weight("frequency", frequency.astype(np.float32)))
            tables.append(RotaryTable(part.add("Cos", angles), part.add("Sin", angles)))
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


@dataclass(frozen=True)
class ConvolvedGraph:
    """A convolution of the embeddings over neighbouring tokens."""

    scope: Scope
    states: Value  # [B, L, D]

    def join(self, hidden: Value) -> Value:
        return norm(self.scope, self.scope.add("Add", hidden, self.states))


def convolve(scope: Scope, embeddings: Value, attention_mask: Value) -> ConvolvedGraph:
    """Return the convolved embeddings of tokens. Padding counts as zeros."""
    c, dense = scope.config, scope / "dense"
    mask = scope.to_float(scope.add("Unsqueeze", attention_mask, scope.integers(2)))
    channels = scope.add("Transpose", scope.add("Mul", embeddings, mask), perm=[0, 2, 1])
    kernel = dense.params["kernel"].transpose(2, 1, 0)  # ours is [width, inputs, outputs]
    beside = c.convolution.width // 2
    convolved = dense.add(
        "Conv", channels, dense.weight("kernel", kernel), dense.weight("bias"), pads=[beside, beside]
    )
    states = scope.add("Transpose", convolved, perm=[0, 2, 1])
    return ConvolvedGraph(scope, ACTIVATIONS[c.convolution.activation](scope, states))
