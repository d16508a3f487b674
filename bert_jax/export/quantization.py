"""Int8 forms of an ONNX file, in which matrix products have 8-bit numbers and a scale for each column of the weights.

A dynamic file computes the scale of activations for each batch. A static file has it from texts, so it is faster and a
result does not depend on the other texts of a batch. One scale suits all numbers of a dense layer's input only if their
ranges are alike. So each number is divided by a factor, by which its row of the weights is multiplied (SmoothQuant).

Scores of attention, embeddings and heads stay float32.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from bert_jax.export.graph import Value
from bert_jax.inference.onnx_session import OnnxSession

SMOOTHING = 0.9  # how much of the unevenness of ranges moves from the activations to the weights
LEAST = 1e-5  # of a range, so that numbers that are always 0 have a scale, too
Batch = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ActivationRange:
    """The smallest and the largest value of each number of a dense layer's input, [D]."""

    low: np.ndarray
    high: np.ndarray

    def widen(self, other: "ActivationRange") -> "ActivationRange":
        return ActivationRange(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


def quantize_dynamic(source: Path, path: Path, weights: str, external: bool) -> None:
    """Write the dynamic int8 form of an ONNX file; `weights` is ONNX Runtime's name of their type."""
    from onnxruntime import quantization
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load_model(source)
    add_pre_process_metadata(model)  # or else it logs that the graph could be simplified first
    quantization.quantize_dynamic(
        model,
        path,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=quantization.QuantType[weights],
        use_external_data_format=external,
        extra_options={"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT},
    )


def dense_layers(model: onnx.ModelProto) -> dict[Value, list[NodeProto]]:
    """Return the matrix products of the encoder's dense layers, by the value that they read."""
    weights = {tensor.name for tensor in model.graph.initializer}
    layers: dict[Value, list[NodeProto]] = {}
    for node in model.graph.node:
        is_dense = node.op_type == "MatMul" and node.input[1] in weights and node.input[0] not in weights
        if is_dense and node.name.startswith("encoder/"):
            layers.setdefault(node.input[0], []).append(node)
    return layers


def measure_ranges(source: Path, batches: Iterable[Batch]) -> dict[Value, ActivationRange]:
    """Return the ranges of what the dense layers of an ONNX file read."""
    model = onnx.load_model(source, load_external_data=False)
    graph, layers = model.graph, dense_layers(model)
    sizes = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    del graph.output[:]
    for value, nodes in layers.items():
        shape = numpy_helper.from_array(np.array([-1, sizes[nodes[0].input[1]]]), f"{value}/shape")
        graph.initializer.append(shape)
        graph.node.append(helper.make_node("Reshape", [value, shape.name], [f"{value}/rows"]))
        for operator in ("ReduceMin", "ReduceMax"):
            output = helper.make_tensor_value_info(f"{value}/{operator}", TensorProto.FLOAT, None)
            graph.node.append(
                helper.make_node(operator, [f"{value}/rows"], [output.name], axes=[0], keepdims=0)
            )
            graph.output.append(output)
    path = source.with_name("ranges.onnx")  # beside it, because there are its external weights
    onnx.save_model(model, path)
    session = OnnxSession(path)
    path.unlink()
    ranges: dict[Value, ActivationRange] = {}
    for batch in batches:
        read = session.run(dict(batch))
        for value in layers:
            seen = ActivationRange(read[f"{value}/ReduceMin"], read[f"{value}/ReduceMax"])
            ranges[value] = ranges[value].widen(seen) if value in ranges else seen
    return ranges


def quantize_static(model: onnx.ModelProto, ranges: Mapping[Value, ActivationRange], weights: str) -> None:
    """Change a graph to its static int8 form; `weights` is ONNX Runtime's name of their type."""
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    before: dict[str, list[NodeProto]] = {}  # nodes that are added before a node, by its name
    for value, nodes in dense_layers(model).items():
        kernels = {node.input[1]: numpy_helper.to_array(initializers[node.input[1]]) for node in nodes}
        factors = smoothing_factors(ranges[value], list(kernels.values()))
        added = Rounding(f"{value}/int8", [], initializers)
        activations = added.round_activations(value, ranges[value], factors)
        before[nodes[0].name] = added.nodes
        for node in nodes:
            added = Rounding(f"{node.name}/int8", [], initializers)
            kernel = added.round_weights(kernels[node.input[1]] * factors[:, None], weights)
            before.setdefault(node.name, []).extend(added.nodes)
            node.input[:] = [activations, kernel]
    nodes = [new for node in model.graph.node for new in (*before.get(node.name, ()), node)]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    model.graph.initializer.extend(tensor for name, tensor in initializers.items() if name in read)


def smoothing_factors(activations: ActivationRange, kernels: Sequence[np.ndarray]) -> np.ndarray:
    """Return what each number of a dense layer's input is divided by, [D]; their geometric mean is 1."""
    ranges = np.maximum(np.maximum(-activations.low, activations.high), LEAST)
    rows = np.maximum(np.max([np.abs(kernel).max(1) for kernel in kernels], axis=0), LEAST)
    factors = ranges**SMOOTHING / rows ** (1 - SMOOTHING)
    return (factors / np.exp(np.log(factors).mean())).astype(np.float32)


@dataclass(frozen=True)
class Rounding:
    """Nodes that round a value to 8 bits and give it back in float32; programs compute what lies between in int8."""

    name: str
    nodes: list[NodeProto]
    initializers: dict[str, TensorProto]

    def add(self, operator: str, *inputs: Value, **attributes: Any) -> Value:
        output = f"{self.name}/{operator}"
        self.nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def array(self, name: str, array: np.ndarray) -> Value:
        tensor = numpy_helper.from_array(array, f"{self.name}/{name}")
        self.initializers[tensor.name] = tensor
        return tensor.name

    def round_activations(self, value: Value, limits: ActivationRange, factors: np.ndarray) -> Value:
        """Divide each number by its factor, and round all with one scale."""
        low = min(0.0, float((limits.low / factors).min()))
        high = max(LEAST, float((limits.high / factors).max()))
        step = (high - low) / 255
        smooth = self.add("Mul", value, self.array("smoothing", 1 / factors))
        scale = self.array("scale", np.array(step, np.float32))
        zero = self.array("zero_point", np.array(round(-low / step), np.uint8))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", smooth, scale, zero), scale, zero)

    def round_weights(self, kernel: np.ndarray, weights: str) -> Value:
        """Round a kernel [D, E] with a scale for each column."""
        scale = (np.maximum(np.abs(kernel).max(0), LEAST) / 127).astype(np.float32)
        rounded = np.round(kernel / scale).astype(np.int8)
        if weights == "QUInt8":
            rounded = (rounded.astype(np.int16) + 128).astype(np.uint8)
        zero = np.full(len(scale), 128 if weights == "QUInt8" else 0, rounded.dtype)
        parts = {"weights": rounded, "scale": scale, "zero_point": zero}
        return self.add(
            "DequantizeLinear", *(self.array(name, array) for name, array in parts.items()), axis=1
        )
