"""`bert-jax bench predict`: how long a classifier takes for one text, and how many it reads in a second.

Everyone gets the same model, texts and threads and takes turns, as in `bench embed`. One text at a time is asked for
each of the texts, so that the percentiles are of short and long ones alike.
"""

import json
from collections.abc import Callable, Sequence

import jax
import numpy as np

import bert_jax
from bert_jax.bench.embed import Runner, drawn
from bert_jax.bench.rivals import by_length, rivals, session_of
from bert_jax.inference.classify import logits_of
from bert_jax.inference.heads import need
from bert_jax.predictions import calibration

ALONE = 200  # texts asked for one by one
PERCENTILES = (50, 90, 99)


def report(
    directory: str, against: Sequence[str], source: str | None, rounds: int = 5, count: int = 500,
    as_json: bool = False,
) -> str:  # fmt: skip
    model = opened(directory)
    texts = drawn(model, source, count)
    encodings = model.tokenizer.encode(texts, max_length=model.config.max_positions)
    tokens = sum(len(encoding.ids) for encoding in encodings) / len(texts)
    runners = {name: Runner(CONTENDERS[name], directory) for name in ("bert-jax", *against)}
    try:
        found = measured(runners, texts, rounds)
    finally:
        for runner in runners.values():
            runner.close()
    if as_json:
        return json.dumps(
            {"texts": len(texts), "tokens": tokens, "device": jax.devices()[0].device_kind, "of": found}
        )
    said = [
        f"{len(texts)} texts of {tokens:.1f} tokens on {jax.devices()[0].device_kind}, {rounds} rounds in turn, "
        f"median (best); one text at a time, {min(ALONE, len(texts))} of them"
    ]
    for name, one in found.items():
        times = ", ".join(f"p{p} {one[f'p{p}_ms']:.1f}" for p in PERCENTILES)
        said.append(
            f"{name:<14}{one['texts_per_second']:7.0f} ({one['best_texts_per_second']:.0f}) texts/s   "
            f"{one['cpu_ms']:6.2f} ms CPU a text   one text: {times} ms"
        )
        if name != "bert-jax":
            said.append(
                f"{'':<14}bert-jax is {one['ours_is']:.2f}x as fast; logits {one['apart']:.1e} apart at most"
            )
    return "\n".join(said)


def measured(runners: dict[str, Runner], texts: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    logits = {name: runner.run(texts)[0] for name, runner in runners.items()}  # compiles, and warms caches
    turns: dict[str, list] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            turns[name].append(runner.run(texts)[1:])
    found = {}
    for name, runner in runners.items():
        each = texts[:ALONE]
        for text in each:
            runner.run([text], pause=0)  # every shape once before it counts
        alone = 1e3 * np.array([runner.run([text], pause=0)[1] for text in each])
        wall, cpu = np.array(turns[name]).T
        found[name] = {
            "texts_per_second": len(texts) / float(np.median(wall)),
            "best_texts_per_second": len(texts) / float(wall.min()),
            "cpu_ms": 1e3 * float(cpu.min()) / len(texts),
            **{f"p{p}_ms": float(np.percentile(alone, p)) for p in PERCENTILES},
            # Rounds are compared pairwise: both sides of a pair met the same machine.
            "ours_is": float(np.median(wall / np.array(turns["bert-jax"])[:, 0])),
            "apart": float(np.abs(logits[name] - logits["bert-jax"]).max()),
        }
    return found


def opened(directory: str):
    model = bert_jax.load(directory)
    need(model, "classify", "bench predict")
    model.calibration = calibration.NONE
    return model


def ours(directory: str) -> Callable:
    model = opened(directory)
    return lambda texts: np.stack(logits_of(model, texts))


def transformers(directory: str) -> Callable:
    torch, library = rivals("torch", "transformers")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    theirs = library.AutoModelForSequenceClassification.from_pretrained(directory).eval().to(device)
    tokenizer = library.AutoTokenizer.from_pretrained(directory)
    longest = theirs.config.max_position_embeddings

    def run(texts, rows_at_once=32):
        found, order = (
            np.zeros((len(texts), theirs.config.num_labels), np.float32),
            np.argsort([len(t) for t in texts]),
        )
        with torch.inference_mode():
            for start in range(0, len(order), rows_at_once):
                rows = order[start : start + rows_at_once]
                given = tokenizer([texts[i] for i in rows], padding=True, truncation=True, max_length=longest,
                                  return_tensors="pt").to(device)  # fmt: skip
                found[rows] = theirs(**given).logits.cpu().numpy()
        return found

    return run


def onnxruntime(directory: str) -> Callable:
    """The classifier through torch's exporter; our tokenizer before it."""
    model, session = opened(directory), session_of(directory, "AutoModelForSequenceClassification", "logits")

    def run(texts, rows_at_once=32):
        found = np.zeros((len(texts), len(model.labels)), np.float32)
        for rows, given in by_length(model, texts, rows_at_once):
            (found[rows],) = session.run(None, given)
        return found

    return run


CONTENDERS = {"bert-jax": ours, "transformers": transformers, "onnxruntime": onnxruntime}
