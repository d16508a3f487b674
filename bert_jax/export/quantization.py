"""Dynamic int8: matrix products of 8-bit numbers, with a scale for each column of the weights.

The scale of activations is computed for each batch. Scores of attention and embeddings stay float32.
"""

from dataclasses import dataclass
from pathlib import Path

from bert_jax.core.errors import BertJaxError, check_name

CPU_INFO = Path("/proc/cpuinfo")
VNNI = {"avx512_vnni", "avx_vnni"}  # instructions that add products of 8-bit numbers in 32 bits


@dataclass(frozen=True)
class Quantization:
    """A form of int8, by the name that Optimum and sentence-transformers give it."""

    weights: str  # ONNX Runtime's type of the weights; that of activations is always unsigned
    needs: frozenset[str] = frozenset()  # instructions of which the processor needs one

    def file(self, name: str) -> str:
        return f"model_{self.weights.lower()}_{name}.onnx"


# The fastest first. Without VNNI, sums of two products of unsigned and signed numbers are cut off at 16 bits, so the
# weights are unsigned there: their products are then added in 32 bits.
QUANTIZATIONS = {
    "avx512_vnni": Quantization("QInt8", frozenset(VNNI)),
    "avx2": Quantization("QUInt8"),
}
AUTO = "auto"  # the first one that this processor supports


def processor_flags() -> set[str]:
    """Return the instruction sets of this processor; empty if the system does not list them."""
    if not CPU_INFO.is_file():
        return set()
    lines = CPU_INFO.read_text().splitlines()
    return {flag for line in lines if line.startswith("flags") for flag in line.split(":")[1].split()}


def choose_quantization(name: str) -> str:
    """Return the name of a quantization that gives right results on this processor."""
    check_name(name, (AUTO, *QUANTIZATIONS), "quantization")
    flags = processor_flags()
    usable = [
        known
        for known, quantization in QUANTIZATIONS.items()
        if not quantization.needs or quantization.needs & flags
    ]
    if name == AUTO:
        return usable[0]
    if name not in usable:
        raise BertJaxError(
            f"--quantize {name} needs a processor with {' or '.join(sorted(QUANTIZATIONS[name].needs))}, and this one "
            f"has none, so the file could not be tested; use --quantize {usable[0]}, or export on such a machine"
        )
    return name


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
