"""Directories with a model as an ONNX file, which sentence-transformers, FastEmbed, TEI and Optimum read.

Beside `onnx/model.onnx` stand the tokenizer, the configs and what the model knows of itself, but no model.safetensors.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.external_data_helper import convert_model_to_external_data

from bert_jax.core import hashes, memory
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import atomic_directory
from bert_jax.export.model_graph import make_model
from bert_jax.export.onnxruntime_session import OnnxSession
from bert_jax.export.verification import largest_difference
from bert_jax.hub.model_directory import WRITTEN_FILES, ModelDirectory, save_model
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.predictions import calibration, out_of_scope, training_origin

ONNX_FILE = "onnx/model.onnx"
EXTERNAL_DATA = "model.onnx_data"  # the weights of a model that is too large for one file
MOST_BYTES = 2**31 - 2**20  # of the weights in one file: protobuf's limit, less room for the rest
LEAST_EXTERNAL = 1024  # bytes of an array that stands in the second file
MOST_DIFFERENT = 1e-4  # an output may differ from ours
COPIES = 5  # of the weights at once: ours, those of the compiled program, the graph, the file, ONNX Runtime's


@dataclass(frozen=True)
class Exported:
    path: Path
    outputs: list[str]
    difference: float


def export_onnx(source, output) -> Exported:
    """Write the model of a directory as an ONNX file, with the files beside it; check that its outputs are ours."""
    directory = ModelDirectory.open(source)
    size = 4 * sum(map(math.prod, directory.tensors.shapes.values()))
    memory.require_free_memory(COPIES * size, f"the export of {source}", "export it on a larger machine")
    model = load(directory)
    with atomic_directory(Path(output), WRITTEN_FILES | {Path(ONNX_FILE).name, EXTERNAL_DATA}) as new:
        path = new / ONNX_FILE
        path.parent.mkdir()
        save_onnx(path, make_model(model.layout, model.params))
        session = OnnxSession(path)
        difference = largest_difference(model, session)
        if not difference <= MOST_DIFFERENT:
            raise BertJaxError(
                f"{output} is not written: outputs of ONNX Runtime differ by up to {difference:.1e} from those of "
                f"{source}, and at most {MOST_DIFFERENT:.0e} is accepted; use the model itself"
            )
        save_beside(new, model)
        hashes.write_hashes(new)
    return Exported(Path(output) / ONNX_FILE, session.outputs, difference)


def save_onnx(path: Path, model: onnx.ModelProto) -> None:
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > MOST_BYTES:
        convert_model_to_external_data(model, location=EXTERNAL_DATA, size_threshold=LEAST_EXTERNAL)
    onnx.save_model(model, path)


def save_beside(directory: Path, model: Encoder) -> None:
    """Write what a model directory holds beside the weights of its encoder."""
    save_model(directory, model.layout, model.params, model.tokenizer, encoder_weights=False)
    calibration.save_calibration(directory, model.calibration)
    training_origin.save_origin(directory, model.origin)
    out_of_scope.save_detector(directory, model.scope)
