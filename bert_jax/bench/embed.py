"""`bert-jax bench embed`: texts per second and the latency of one, side by side with what others use.

Everyone gets the same model, texts and threads, and they take turns, so that a machine's moods meet all of them.
CPU time is given too: unlike the clock's, it does not grow when other programs want the cores.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import bert_jax
from bert_jax.errors import BertJaxError
from bert_jax.lines import lines

SAMPLE = 500
LATENCY_CALLS = 200


def report(
    directory: str, against: Sequence[str], source: str | None, rounds: int = 5, count: int = SAMPLE
) -> str:
    model = bert_jax.load(directory)
    # No one cuts a text at another length.
    model.embedder = replace(model.embedder, max_length=model.config.max_positions, default_prompt=None)
    texts = [text for text in lines(source) if text.strip()] if source else sampled(model, count)
    texts = [texts[i] for i in np.random.RandomState(0).permutation(len(texts))[:count]]
    runners: dict[str, Callable] = {"bert-jax": model.embed}
    for name in against:
        runners[name] = RIVALS[name](directory, model)
    vectors = {name: np.asarray(run(texts)) for name, run in runners.items()}  # compiles, and warms caches
    wall: dict[str, list] = {name: [] for name in runners}
    cpu: dict[str, list] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, run in runners.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            run(texts)
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - start_cpu)
    short = min(texts, key=lambda text: abs(len(text) - 40))
    tokens = sum(
        len(encoding.ids) for encoding in model.tokenizer.encode(texts, max_length=model.config.max_positions)
    )
    said = [f"{len(texts)} texts of {tokens / len(texts):.1f} tokens, {rounds} rounds in turn, median (best)"]
    for name, run in runners.items():
        rate, best = len(texts) / statistics.median(wall[name]), len(texts) / min(wall[name])
        p50, p99 = latency(run, short)
        said.append(
            f"{name:<22}{rate:7.0f} ({best:.0f}) texts/s   {1e3 * min(cpu[name]) / len(texts):6.2f} ms CPU a text   "
            f"one text: p50 {p50:.1f} ms, p99 {p99:.1f} ms"
        )
        if name != "bert-jax":
            # Rounds are compared pairwise: both sides of a pair met the same machine.
            ratio = statistics.median(b / a for a, b in zip(wall["bert-jax"], wall[name], strict=True))
            ratio_cpu = min(cpu[name]) / min(cpu["bert-jax"])
            apart = np.abs(vectors[name] - vectors["bert-jax"]).max()
            said.append(
                f"{'':<22}bert-jax is {ratio:.2f}x as fast by the clock, {ratio_cpu:.2f}x by CPU time; "
                f"vectors at most {apart:.1e} apart"
            )
    return "\n".join(said)


def latency(run, text: str) -> tuple[float, float]:
    """(p50, p99) in milliseconds."""
    times = []
    for _ in range(LATENCY_CALLS):
        start = time.perf_counter()
        run([text])
        times.append(1e3 * (time.perf_counter() - start))
    return tuple(np.percentile(times[10:], (50, 99)))


def sampled(model, count: int) -> list[str]:
    """Texts of random words, most of them a sentence long and some a paragraph."""
    random = np.random.RandomState(0)
    entries = [entry for entry in model.tokenizer.tokens(range(model.tokenizer.size)) if entry.isalpha()]
    lengths = np.exp(random.normal(2.8, 0.7, count)).clip(2, 250).astype(int)
    return [" ".join(random.choice(entries, n)) for n in lengths]


def sentence_transformers(directory: str, model) -> Callable:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise BertJaxError(
            "`sentence-transformers` is the rival here: pip install sentence-transformers"
        ) from error
    theirs = SentenceTransformer(directory, device="cpu")
    theirs.max_seq_length = model.config.max_positions
    return lambda texts: theirs.encode(texts, show_progress_bar=False)


def onnxruntime(directory: str, model) -> Callable:
    """The encoder through torch's exporter; our tokenizer before it and our pooling behind it, in NumPy."""
    try:
        import onnxruntime as ort
        import torch
        import transformers
    except ImportError as error:
        raise BertJaxError("this rival needs: pip install onnxruntime onnx torch transformers") from error
    encoder = transformers.AutoModel.from_pretrained(directory).eval()

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, ids, mask, segments):
            return self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state

    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "encoder.onnx")
        some = torch.ones((2, 8), dtype=torch.long)
        axes = {name: {0: "rows", 1: "length"} for name in ("ids", "mask", "segments", "hidden")}
        torch.onnx.export(
            Hidden(), (some, some, 0 * some), path, dynamo=False, opset_version=17,
            input_names=["ids", "mask", "segments"], output_names=["hidden"], dynamic_axes=axes,
        )  # fmt: skip
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(texts, rows_at_once=32):
        encodings = model.tokenizer.encode(texts, max_length=model.config.max_positions)
        order = sorted(range(len(texts)), key=lambda i: len(encodings[i].ids))
        vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
        for start in range(0, len(order), rows_at_once):
            rows = order[start : start + rows_at_once]
            mask = np.zeros((len(rows), len(encodings[rows[-1]].ids)), np.int64)
            ids = np.full_like(mask, model.tokenizer.special.pad)
            for row, i in enumerate(rows):
                ids[row, : len(encodings[i].ids)] = encodings[i].ids
                mask[row, : len(encodings[i].ids)] = 1
            (hidden,) = session.run(None, {"ids": ids, "mask": mask, "segments": np.zeros_like(mask)})
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
            vectors[rows] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return vectors

    if model.embedder.pooling != "mean" or not model.embedder.normalize:
        print(
            "bench: this embedder is not mean-pooled and normalised; only the encoder compares",
            file=sys.stderr,
        )
    return run


RIVALS = {"sentence-transformers": sentence_transformers, "onnxruntime": onnxruntime}
