"""An ONNX graph under construction, and the places in it where layers add their nodes.

A value of the graph is named by a string: that of the node that computes it, of a weight, of a constant or of an input.
Names are stable: they follow the modules and parameters of `models/`, so `encoder/layers.0/attention/query/MatMul`
reads `encoder/layers.0/attention/query/kernel`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bert_jax import __version__
from bert_jax.models.encoder_config import EncoderConfig

OPSET = 17  # the first that has LayerNormalization, so that most versions of other programs read it
IR_VERSION = 8  # the version of the file format of that time
BATCH, LENGTH = "batch_size", "sequence_length"  # the axes whose sizes are those of the inputs

Value = str


@dataclass(frozen=True)
class Output:
    """A value that the graph returns, and its shape."""

    value: Value
    shape: tuple[int | str, ...]


class Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.times_named: Counter[str] = Counter()

    def add_node(self, name: str, operator: str, inputs: Sequence[Value], outputs: int = 1, **attributes):
        """Add a node and return its value, or its values if it has several `outputs`."""
        self.times_named[name] += 1
        if (number := self.times_named[name]) > 1:
            name = f"{name}_{number}"
        values = [name] if outputs == 1 else [f"{name}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, values, name, **attributes))
        return name if outputs == 1 else values

    def add_initializer(self, name: str, array: np.ndarray) -> Value:
        """Add an array, once for each name."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def to_model(self, inputs: Sequence[str], outputs: Mapping[str, Output]) -> onnx.ModelProto:
        """Return the model with these inputs, int64 [batch_size, sequence_length], and these outputs by name."""
        renamed = [helper.make_node("Identity", [out.value], [name], name) for name, out in outputs.items()]
        graph = helper.make_graph(
            [*self.nodes, *renamed],
            "bert_jax",
            [helper.make_tensor_value_info(name, TensorProto.INT64, [BATCH, LENGTH]) for name in inputs],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, out.shape)
                for name, out in outputs.items()
            ],
            list(self.initializers.values()),
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="bert_jax",
            producer_version=__version__,
        )


@dataclass(frozen=True)
class Scope:
    """A module's place in the graph: the path that names its nodes, and its parameters with the path of their names.

    The paths differ only where layers share parameters.
    """

    graph: Graph
    config: EncoderConfig
    params: Mapping[str, Any]
    path: str = ""
    weight_path: str = ""

    def __truediv__(self, name: str) -> "Scope":
        """Return the place of a part of the module, with the parameters of that name if there are any."""
        inner = self.params.get(name)
        return replace(
            self,
            params=inner if isinstance(inner, Mapping) else {},
            path=f"{self.path}/{name}".lstrip("/"),
            weight_path=f"{self.weight_path}/{name}".lstrip("/"),
        )

    def add(self, operator: str, *inputs: Value, **attributes) -> Value:
        return self.graph.add_node(f"{self.path}/{operator}", operator, inputs, **attributes)

    def split(self, value: Value, axis: int) -> list[Value]:
        """Return the two halves of a value."""
        return self.graph.add_node(f"{self.path}/Split", "Split", [value], outputs=2, axis=axis)

    def to_float(self, value: Value) -> Value:
        return self.add("Cast", value, to=TensorProto.FLOAT)

    def to_bool(self, value: Value) -> Value:
        return self.add("Cast", value, to=TensorProto.BOOL)

    def weight(self, name: str, array: np.ndarray | None = None) -> Value:
        """Return the parameter of this name as a value, or `array` if that is the form in which it is read."""
        array = self.params[name] if array is None else array
        return self.graph.add_initializer(f"{self.weight_path}/{name}", array)

    def number(self, number: float) -> Value:
        """Return a float32 constant."""
        return self.graph.add_initializer(f"constants/{number:.9g}", np.array(number, np.float32))

    def integers(self, *numbers: int) -> Value:
        """Return a constant list of int64, such as a shape."""
        name = f"constants/[{','.join(map(str, numbers))}]"
        return self.graph.add_initializer(name, np.array(numbers, np.int64))

    def index(self, number: int) -> Value:
        """Return a constant int64 without axes."""
        return self.graph.add_initializer(f"constants/index {number}", np.array(number, np.int64))
