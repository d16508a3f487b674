"""Int8 files of an embedder beside float32: quality on scored pairs, and speed with one thread, in turn."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from bert_jax.export.onnx_directory import export_onnx
from bert_jax.hub.onnx_files import OnnxFile, choose_quantization
from bert_jax.inference.batching import pad_batch
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.engines.openvino import OpenVinoSession
from bert_jax.inference.onnx_session import OnnxSession
from bert_jax.text.encoding import Encoding
from bert_jax.text.tokenizer import Tokenizer

SCORE, FIRST, SECOND = 4, 5, 6  # columns of STS-B's files
BATCH = 32
SENTENCES = 18  # of a long text
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


def open_files(folder: Path, model: str, calibrate: str) -> dict[str, Callable]:
    """Return the functions of a batch that compute the vectors, by name; the first is that of float32."""
    os.environ["OMP_NUM_THREADS"] = "1"
    texts = folder / "texts.txt"
    texts.write_text("\n".join(read_pairs(calibrate)[1]), encoding="utf-8")
    exact = OnnxFile(export_onnx(model, folder / "float32")[0].path, "float32")
    opened = {
        "float32": OnnxSession(exact.path),
        "openvino float32": OpenVinoSession(exact),
        "openvino bfloat16": OpenVinoSession(OnnxFile(exact.path, "bfloat16")),
    }
    for name in dict.fromkeys([choose_quantization("auto"), "avx2"]):
        for form, calibration_data in {"dynamic": "", "static": str(texts)}.items():
            _, rounded = export_onnx(model, folder / name / form, name, calibration_data)
            opened[f"{form} {name}"] = OnnxSession(rounded.path)
        opened[f"openvino static {name}"] = OpenVinoSession(OnnxFile(rounded.path, "int8", is_static=True))
    return {
        name: lambda batch, file=file: file.run(batch, ["sentence_embedding"])["sentence_embedding"]
        for name, file in opened.items()
    }


def compare_files(model: str, data: str, calibrate: str, rounds: int) -> None:
    """Print for each file the change of Spearman's correlation, and how many times as fast as float32 it is."""
    scores, texts = read_pairs(data)
    embedder = Embedder.load(model)

    def encode(some: Sequence[str]) -> list[Encoding]:
        encodings = embedder.tokenizer.encode(some, max_length=embedder.max_seq_length)
        return sorted(encodings, key=lambda encoding: len(encoding.input_ids))

    encodings = embedder.tokenizer.encode(texts, max_length=embedder.max_seq_length)
    order = np.argsort([len(encoding.input_ids) for encoding in encodings], kind="stable")
    together = batches(embedder.tokenizer, encode(texts), BATCH)
    long = [" ".join(texts[start : start + SENTENCES]) for start in range(0, 60 * SENTENCES, SENTENCES)]
    sets = {
        "in batches": together[::4],
        "one at a time": batches(embedder.tokenizer, encode(texts)[::40], 1),
        "long texts": batches(embedder.tokenizer, encode(long), 4),
    }
    random = np.random.RandomState(0)
    drawn = [random.randint(len(scores), size=len(scores)) for _ in range(RESAMPLES)]
    with tempfile.TemporaryDirectory() as folder:
        files = open_files(Path(folder), model, calibrate)
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
            for _ in range(rounds + 1):  # the first time, shapes are compiled
                for name, compute in files.items():
                    begun = time.perf_counter()
                    for batch in inputs:
                        compute(batch)
                    seconds[name].append(time.perf_counter() - begun)
            for name, spent in seconds.items():
                ratios = np.divide(seconds["float32"][1:], spent[1:])
                shown = f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"
                print(f"{what}, {name}: {shown} times as fast as float32", flush=True)
