"""Int8 files of an embedder beside float32: quality on scored pairs, and speed with one thread, in turn.

Static files have scales of the activations that are computed once, from texts, and not anew for each batch. They and
OpenVINO need `pip install openvino==2026.4.1 nncf==3.4.0`.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from bert_jax.export.onnx_directory import export_onnx
from bert_jax.hub.onnx_files import choose_quantization
from bert_jax.inference.batching import pad_batch
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.onnx_session import OnnxSession
from bert_jax.text.encoding import Encoding
from bert_jax.text.tokenizer import Tokenizer

SCORE, FIRST, SECOND = 4, 5, 6  # columns of STS-B's files
BATCH = 32
CALIBRATING, CALIBRATION_BATCH = 400, 16  # texts
RESAMPLES = 500
Batch = dict[str, np.ndarray]


def read_pairs(path: str) -> tuple[np.ndarray, list[str]]:
    """Return the scores of STS-B's pairs, and the first texts followed by the second ones."""
    rows = [line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()]
    texts = [row[column] for column in (FIRST, SECOND) for row in rows]
    return np.array([float(row[SCORE]) for row in rows]), texts


def batches(tokenizer: Tokenizer, encodings: Sequence[Encoding], size: int) -> list[Batch]:
    return [
        pad_batch(encodings[start : start + size], tokenizer.special.pad)
        for start in range(0, len(encodings), size)
    ]


class OpenVinoModel:
    def __init__(self, path: Path):
        import openvino

        core = openvino.Core()
        # By default it computes in bfloat16 where the processor can.
        core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
        self.model = core.compile_model(path, "CPU")
        self.inputs = [value.any_name for value in self.model.inputs]

    def run(self, batch: Batch) -> dict[str, np.ndarray]:
        outputs = self.model({name: batch[name] for name in self.inputs})
        return {name: outputs[name] for name in ("sentence_embedding",)}


def quantize_static(float32: Path, calibration: list[Batch]) -> Path:
    """Write a file of ONNX Runtime with the least and the largest activations that were seen as their range."""
    import onnx
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.rest = iter(calibration)

        def get_next(self):
            return next(self.rest, None)

    model, path = onnx.load(float32), float32.with_name("static.onnx")
    weights = {tensor.name for tensor in model.graph.initializer}
    dense = [node.name for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in weights]
    quantization.quantize_static(
        model,
        path,
        Reader(),
        op_types_to_quantize=["MatMul"],
        nodes_to_quantize=dense,
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    return path


def quantize_with_nncf(model, calibration: list[Batch]):
    """Quantize by NNCF for transformers, which first moves large activations into the weights (SmoothQuant)."""
    import nncf

    data = nncf.Dataset(calibration)
    return nncf.quantize(model, data, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(calibration))


def quantize_smooth(float32: Path, calibration: list[Batch]) -> Path:
    import onnx

    path = float32.with_name("smooth.onnx")
    onnx.save(quantize_with_nncf(onnx.load(float32), calibration), path)
    return path


def quantize_openvino(float32: Path, calibration: list[Batch]) -> Path:
    import openvino

    path = float32.with_name("openvino.xml")
    model = quantize_with_nncf(openvino.Core().read_model(float32), calibration)
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


# Each needs packages that the tests do not.
STATIC: dict[str, Callable[[Path, list[Batch]], Path]] = {
    "onnxruntime-static": quantize_static,
    "onnxruntime-smooth": quantize_smooth,
    "openvino": quantize_openvino,
}


def open_files(folder: Path, model: str, names: Sequence[str], texts: Sequence[str]) -> dict[str, Callable]:
    """Return the functions of a batch that compute the vectors, by name; the first is that of float32."""
    embedder = Embedder.load(model)
    opened = {}
    for name in dict.fromkeys([choose_quantization("auto"), "avx2"]):
        exact, rounded = export_onnx(model, folder / name, name)
        opened |= {"float32": OnnxSession(exact.path, 1), f"dynamic {name}": OnnxSession(rounded.path, 1)}
    if names:
        length = {"max_length": embedder.max_seq_length}
        encodings = embedder.tokenizer.encode(
            texts[:: max(len(texts) // CALIBRATING, 1)][:CALIBRATING], **length
        )
        read = batches(embedder.tokenizer, encodings, CALIBRATION_BATCH)
        calibration = [{name: array.astype(np.int64) for name, array in batch.items()} for batch in read]
        for name in names:
            path = STATIC[name](exact.path, calibration)
            if path.suffix == ".xml":
                opened |= {f"{name} float32": OpenVinoModel(exact.path), f"{name} int8": OpenVinoModel(path)}
            else:
                opened[name] = OnnxSession(path, 1)
    return {
        name: lambda batch, file=file: file.run(batch)["sentence_embedding"] for name, file in opened.items()
    }


def compare_files(model: str, data: str, calibrate: str | None, names: Sequence[str], rounds: int) -> None:
    """Print for each file the change of Spearman's correlation, and how many times as fast as float32 it is."""
    scores, texts = read_pairs(data)
    embedder = Embedder.load(model)
    encodings = embedder.tokenizer.encode(texts, max_length=embedder.max_seq_length)
    order = np.argsort([len(encoding.input_ids) for encoding in encodings], kind="stable")
    sorted_encodings = [encodings[number] for number in order]
    together = batches(embedder.tokenizer, sorted_encodings, BATCH)
    sets = {
        "in batches": together[::4],
        "one at a time": batches(embedder.tokenizer, sorted_encodings[::40], 1),
    }
    random = np.random.RandomState(0)
    drawn = [random.randint(len(scores), size=len(scores)) for _ in range(RESAMPLES)]
    with tempfile.TemporaryDirectory() as folder:
        files = open_files(Path(folder), model, names, read_pairs(calibrate)[1] if calibrate else texts)
        similarities = {}
        for name, compute in files.items():
            vectors = np.empty((len(texts), embedder.get_embedding_dimension()))
            vectors[order] = np.concatenate([compute(batch) for batch in together])
            similarities[name] = (vectors[: len(scores)] * vectors[len(scores) :]).sum(1)
            values, exact = (
                100 * spearmanr(similarities[key], scores).statistic for key in (name, "float32")
            )
            changes = [
                100 * (spearmanr(similarities[name][rows], scores[rows]).statistic
                       - spearmanr(similarities["float32"][rows], scores[rows]).statistic)
                for rows in drawn
            ]  # fmt: skip
            low, high = np.quantile(changes, (0.025, 0.975))
            print(f"{name}: {values:.2f}, {values - exact:+.2f} ({low:+.2f} to {high:+.2f})", flush=True)
        for what, inputs in sets.items():
            seconds = {name: [] for name in files}
            for _ in range(rounds):
                for name, compute in files.items():
                    begun = time.perf_counter()
                    for batch in inputs:
                        compute(batch)
                    seconds[name].append(time.perf_counter() - begun)
            for name, spent in seconds.items():
                ratios = np.divide(seconds["float32"], spent)
                shown = f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"
                print(f"{what}, {name}: {shown} times as fast as float32", flush=True)
