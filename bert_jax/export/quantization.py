"""Dynamic int8: matrix products of 8-bit numbers, with a scale for each column of the weights.

The scale of activations is computed for each batch. Scores of attention and embeddings stay float32.
"""

from pathlib import Path

from bert_jax.hub.onnx_files import QUANTIZATIONS


def quantize_file(source: Path, name: str, external: bool) -> Path:
    """Write the quantized form of an ONNX file beside it, and return its path."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load_model(source)
    add_pre_process_metadata(model)  # or else it logs that the graph could be simplified first
    quantization = QUANTIZATIONS[name]
    path = source.with_name(quantization.file(name))
    quantize_dynamic(
        model,
        path,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType[quantization.weights],
        use_external_data_format=external,
        extra_options={"MatMulConstBOnly": True, "DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    return path
