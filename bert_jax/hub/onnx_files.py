"""The ONNX files of a model directory: their names, those of their inputs and outputs, which other programs expect, and
which of the files this processor computes right."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.files import read_json
from bert_jax.core.processor import processor_flags
from bert_jax.hub.layout import Layout
from bert_jax.hub.tensors import FILES

HIDDEN_STATES, EMBEDDING, LOGITS = "last_hidden_state", "sentence_embedding", "logits"
TOKEN_VECTORS = "token_embeddings"
ANSWER_LOGITS = ("start_logits", "end_logits")
ONNX_FILE, SOURCE_FILE = "onnx/model.onnx", "onnx/source.json"
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


class NoOnnxFile(BertJaxError):
    """Raised if a directory has no ONNX file for a type of number."""


class ExportSource(TypedDict):
    fingerprint: str  # of the directory that the ONNX files were exported from


def input_names(layout: Layout) -> list[str]:
    """Return the names of the inputs; models of one segment type or none do not read segments."""
    segments = layout.config.type_vocab_size > 1
    return ["input_ids", "attention_mask", *["token_type_ids"] * segments]


def read_source_fingerprint(directory: Path) -> str | None:
    """Return the fingerprint of the model that the files of a directory were exported from, if it holds no other."""
    file = directory / SOURCE_FILE
    if not file.is_file() or any((directory / name).is_file() for name in FILES):
        return None
    return read_json(file, ExportSource)["fingerprint"]


def usable_quantizations() -> list[str]:
    """Return the names of the quantizations that give right results on this processor, the fastest first."""
    flags = processor_flags()
    return [name for name, form in QUANTIZATIONS.items() if not form.needs or form.needs & flags]


def choose_quantization(name: str) -> str:
    """Return the name of a quantization that gives right results on this processor."""
    check_name(name, (AUTO, *QUANTIZATIONS), "quantization")
    usable = usable_quantizations()
    if name == AUTO:
        return usable[0]
    if name not in usable:
        raise BertJaxError(
            f"--quantize {name} needs a processor with {' or '.join(sorted(QUANTIZATIONS[name].needs))}, and this one "
            f"has none, so the file could not be tested; use --quantize {usable[0]}, or export on such a machine"
        )
    return name


def dtype_of(file: Path) -> str:
    return "float32" if file.name == Path(ONNX_FILE).name else "int8"


def find_onnx_file(directory: Path, dtype: str) -> Path:
    """Return the file of a model directory that computes in this type of number."""
    names = [ONNX_FILE] if dtype == "float32" else [
        str(Path(ONNX_FILE).with_name(QUANTIZATIONS[name].file(name))) for name in usable_quantizations()
    ]  # fmt: skip
    for name in names:
        if (directory / name).is_file():
            return directory / name
    more = "" if dtype == "float32" else " --quantize auto"
    source = directory if any((directory / name).is_file() for name in FILES) else "DIR"
    raise NoOnnxFile(
        f"{directory} has no {' or '.join(names)}; `bert-jax export {source} --format onnx{more} --output OUT` writes "
        "it"
    )
