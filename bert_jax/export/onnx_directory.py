"""Directories with a model as an ONNX file, which sentence-transformers, FastEmbed, TEI and Optimum read.

Beside `onnx/model.onnx` stand the tokenizer, the configs and what the model knows of itself, but no model.safetensors.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import onnx
from onnx.external_data_helper import convert_model_to_external_data

from bert_jax.core import hashes, memory
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_json
from bert_jax.core.output import atomic_directory
from bert_jax.core.surrogates import holds_surrogates
from bert_jax.data.examples.columns import AUTODETECT
from bert_jax.data.examples.unlabelled_texts import read_unlabelled
from bert_jax.export.heads import exported_head
from bert_jax.export.model_graph import make_model
from bert_jax.export.quantization import measure_ranges, quantize_dynamic, quantize_static
from bert_jax.export.verification import Difference, encode, measure_difference, require_equal_outputs
from bert_jax.hub.model_directory import ModelDirectory, model_fingerprint, save_model
from bert_jax.hub.onnx_files import ONNX_FILE, QUANTIZATIONS, SOURCE_FILE, choose_quantization
from bert_jax.inference.batching import pad_batch, split_texts
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.inference.onnx_session import OnnxSession
from bert_jax.inference.row_predictor import RowPredictor
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.predictions import calibration, out_of_scope, training_origin
from bert_jax.predictions.kind import find_kind
from bert_jax.text.encoding import Encoding
from bert_jax.text.truncation import TruncationCounter

EXTERNAL_DATA = "model.onnx_data"  # the weights of a model that is too large for one file
MOST_BYTES = 2**31 - 2**20  # of the weights in one file: protobuf's limit, less room for the rest
LEAST_EXTERNAL = 1024  # bytes of an array that stands in the second file
MOST_ROUNDED = (
    0.5  # int8 may change outputs by this share of their size; working files change them by a tenth or so
)
READ_TEXTS, CALIBRATION_TEXTS = 20_000, 400  # rows of a file, and texts among them
COPIES = 5  # of the weights at once: ours, those of the compiled program, the graph, the file, ONNX Runtime's


@dataclass(frozen=True)
class ExportedFile:
    path: Path
    outputs: list[str]
    difference: Difference


def export_onnx(
    source, output, quantization: str | None = None, calibration_data: str = ""
) -> list[ExportedFile]:
    """Write the model of a directory as an ONNX file, with the files beside it; check that its outputs are ours.

    With a `quantization`, write it in int8, too: with the ranges of activations of each batch, or with those for texts
    of the file `calibration_data`.
    """
    if holds_surrogates(str(Path(output).absolute())):
        raise BertJaxError(
            f"ONNX Runtime opens only files whose path is UTF-8, which {output!s} is not; name another"
        )
    quantization = quantization and choose_quantization(quantization)
    directory = ModelDirectory.open(source)
    size = 4 * sum(map(math.prod, directory.tensors.shapes.values()))
    memory.require_free_memory(COPIES * size, f"the export of {source}", "export it on a larger machine")
    model, output = load(directory), Path(output)
    encodings = calibration_encodings(model, calibration_data) if calibration_data else []
    with atomic_directory(output) as new:
        path = new / ONNX_FILE
        path.parent.mkdir()
        save_onnx(path, make_model(model.layout, directory.read_params(), model.scope.is_fitted))
        exact = verify_file(path, model)
        require_equal_outputs(exact.difference, "ONNX Runtime", source, output)
        files = [exact]
        if quantization:
            rounded = verify_file(
                quantize_file(path, quantization, encodings, model.tokenizer.special.pad), model
            )
            if not rounded.difference.share <= MOST_ROUNDED:
                raise BertJaxError(
                    f"{output} is not written: int8 changes the outputs by {rounded.difference.share:.0%} of their "
                    f"size, more than {MOST_ROUNDED:.0%}; leave --quantize out"
                )
            files.append(rounded)
        save_beside(new, model)
        write_json(new / SOURCE_FILE, {"fingerprint": model_fingerprint(directory)})
        hashes.write_hashes(new)
    return [replace(file, path=output / file.path.relative_to(new)) for file in files]


def verify_file(path: Path, model: Encoder) -> ExportedFile:
    session = OnnxSession(path)
    return ExportedFile(path, session.outputs, measure_difference(model, session))


def save_onnx(path: Path, model: onnx.ModelProto, external: str = EXTERNAL_DATA) -> None:
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > MOST_BYTES:
        convert_model_to_external_data(model, location=external, size_threshold=LEAST_EXTERNAL)
    onnx.save_model(model, path)


def quantize_file(source: Path, name: str, encodings: Sequence[Encoding], pad: int) -> Path:
    """Write the int8 form of an ONNX file beside it, and return its path. With encoded texts, it is the static one."""
    quantization = QUANTIZATIONS[name]
    path = source.with_name(quantization.file(name, is_static=bool(encodings)))
    if not encodings:
        external = (source.parent / EXTERNAL_DATA).exists()
        quantize_dynamic(source, path, quantization.weights, external)
        return path
    batches = (split_texts(pad_batch([encoding], pad)) for encoding in encodings)
    ranges = measure_ranges(source, batches)
    model = onnx.load_model(source)
    quantize_static(model, ranges, quantization.weights)
    save_onnx(path, model, f"{path.name}_data")
    return path


def calibration_encodings(model: Encoder, source: str) -> Sequence[Encoding]:
    """Encode some texts of a file as the model reads them; they are spread over its first rows."""
    if find_kind(model.layout) is None:
        return encode(model, exported_head(model.layout), spread(read_unlabelled(source), source))
    _, examples = RowPredictor(model).read_input(source, AUTODETECT)
    texts = spread((example.text for example in examples), source)
    uncounted = TruncationCounter(model.config.max_position_embeddings)
    return OutcomePipeline(model, model.kind, truncated=uncounted).preprocess(texts).rows


def spread(texts: Iterator, source: str) -> list:
    if not (first := list(islice(texts, READ_TEXTS))):
        raise BertJaxError(f"--calibration-data {source} has no text")
    return first[:: math.ceil(len(first) / CALIBRATION_TEXTS)]


def save_beside(directory: Path, model: Encoder) -> None:
    """Write what a model directory holds beside the weights of its encoder."""
    save_model(directory, model.layout, model.params, model.tokenizer, encoder_weights=False)
    calibration.save_calibration(directory, model.calibration)
    training_origin.save_origin(directory, model.origin)
    out_of_scope.save_detector(directory, model.scope)
