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

    def file(self, name: str, is_static: bool) -> str:
        return f"model_{'static_' if is_static else ''}{self.weights.lower()}_{name}.onnx"


# The fastest first. Without VNNI, sums of two products of unsigned and signed numbers are cut off at 16 bits, so the
# weights are unsigned there: their products are then added in 32 bits.
QUANTIZATIONS = {
    "avx512_vnni": Quantization("QInt8", frozenset(VNNI)),
    "avx2": Quantization("QUInt8"),
}
AUTO = "auto"  # the first one that this processor supports


@dataclass(frozen=True)
class OnnxFile:
    path: Path
    dtype: str  # that a model computes in with it
    is_static: bool = False  # whether the ranges of int8 activations stand in it


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


def find_onnx_file(directory: Path, dtype: str, static_only: bool = False) -> OnnxFile:
    """Return the file of a model directory with which a model computes in this type of number."""
    files = [OnnxFile(directory / ONNX_FILE, dtype)] if dtype != "int8" else [
        OnnxFile((directory / ONNX_FILE).with_name(QUANTIZATIONS[name].file(name, is_static)), dtype, is_static)
        for name in usable_quantizations() for is_static in (True, False)[: 1 if static_only else 2]
    ]  # fmt: skip
    for file in files:
        if file.path.is_file():
            return file
    more = "" if dtype != "int8" else " --quantize auto"
    more += " --calibration-data TEXTS" * static_only
    source = directory if any((directory / name).is_file() for name in FILES) else "DIR"
    names = [file.path.relative_to(directory).as_posix() for file in files]
    raise NoOnnxFile(
        f"{directory} has no {' or '.join(names)}; `bert-jax export {source} --format onnx{more} --output OUT` writes "
        "it"
    )
