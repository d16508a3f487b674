"""`bert-jax bench embed` and `bench predict`: throughput and latency of a model on texts, beside other libraries.

All get the same model, texts and threads. Latency is of texts one at a time, short and long ones alike.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import jax
import numpy as np

import bert_jax
from bert_jax.bench.libraries import by_length, libraries, onnx_session
from bert_jax.bench.turns import Machine, Turn, contending, describe, in_turn, speedups
from bert_jax.errors import BertJaxError
from bert_jax.predictions import calibration
from bert_jax.text.lines import read_lines

ALONE = 200  # texts that are read one at a time
ROWS = 32  # texts of a batch of the other libraries
PERCENTILES = (50, 90, 99)


def measure(
    verb: str, directory: str, against: Sequence[str], source: str | None, count: int = 500, rounds: int = 5,
    as_json: bool = False,
) -> str:  # fmt: skip
    open_model, makers = SUBJECTS[verb]
    model = open_model(directory)
    texts = draw(model, source, count)
    encodings = model.tokenizer.encode(texts, max_length=model.config.max_positions)
    tokens = sum(len(encoding.ids) for encoding in encodings) / len(texts)
    machine = Machine()
    with contending({name: (makers[name], directory) for name in ("bert-jax", *against)}) as contenders:
        results, turns = compare(contenders, texts, rounds)
    load, device = machine.during(turns), jax.devices()[0].device_kind
    if as_json:
        facts = {"texts": len(texts), "tokens": tokens, "device": device, "machine": load}
        return json.dumps(facts | {"of": results})
    return "\n".join(
        [
            f"{len(texts)} texts of {tokens:.1f} tokens on {device}, {rounds} rounds in turn, median (best); one text "
            f"at a time, {min(ALONE, len(texts))} of them",
            *(line for name, result in results.items() for line in describe_contender(name, result)),
            describe(load),
        ]
    )


def compare(contenders: Mapping[str, Callable], texts: Sequence[str], rounds: int) -> tuple[dict, list[Turn]]:
    """What is measured of each contender, and the turns that count."""
    first = {name: contender(texts) for name, contender in contenders.items()}  # compiles, and warms caches
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    for name, _, turn in in_turn(contenders, [(texts,)] * rounds):
        turns[name].append(turn)
    results = {}
    for name, contender in contenders.items():
        alone = [[text] for text in texts[:ALONE]]
        for text in alone:
            contender(text, pause=0)  # compiles every shape before it counts
        latency = 1e3 * np.array([contender(text, pause=0)[1].seconds for text in alone])
        seconds, cpu = np.array([(turn.seconds, turn.cpu) for turn in turns[name]]).T
        results[name] = {
            "texts_per_second": len(texts) / float(np.median(seconds)),
            "best_texts_per_second": len(texts) / float(seconds.min()),
            "cpu_ms": 1e3 * float(cpu.min()) / len(texts),
            **{f"p{p}_ms": float(np.percentile(latency, p)) for p in PERCENTILES},
            "first_seconds": first[name][1].seconds,
            "ours_is": float(np.median(speedups(turns["bert-jax"], turns[name]))),
            "ours_is_by_cpu": float(cpu.min()) / min(turn.cpu for turn in turns["bert-jax"]),
            "apart": float(np.abs(first[name][0] - first["bert-jax"][0]).max()),
        }
    return results, sum(turns.values(), [])


def describe_contender(name: str, result: dict) -> list[str]:
    latency = ", ".join(f"p{p} {result[f'p{p}_ms']:.1f}" for p in PERCENTILES)
    lines = [
        f"{name:<22}{result['texts_per_second']:7.0f} ({result['best_texts_per_second']:.0f}) texts/s   "
        f"{result['cpu_ms']:6.2f} ms CPU per text   one text: {latency} ms   first call {result['first_seconds']:.1f} s"
    ]
    if name != "bert-jax":
        lines.append(
            f"{'':<22}bert-jax is {result['ours_is']:.2f}x as fast, {result['ours_is_by_cpu']:.2f}x by CPU time; "
            f"outputs differ by {result['apart']:.1e} at most"
        )
    return lines


def draw(model, source: str | None, count: int) -> list[str]:
    """So many lines of the file, or made-up texts, always in the same order."""
    texts = [text for text in read_lines(source) if text.strip()] if source else random_texts(model, count)
    if not texts:
        raise BertJaxError(f"{source} holds no text; name a file with one text per line")
    return [texts[i] for i in np.random.RandomState(0).permutation(len(texts))[:count]]


def random_texts(model, count: int) -> list[str]:
    """Texts of random words, most of them a sentence long and some a paragraph."""
    random = np.random.RandomState(0)
    entries = [entry for entry in model.tokenizer.tokens(range(model.tokenizer.size)) if entry.isalpha()]
    lengths = np.exp(random.normal(2.8, 0.7, count)).clip(2, 250).astype(int)
    return [" ".join(random.choice(entries, n)) for n in lengths]


def open_embedder(directory: str):
    """Truncates texts at the encoder's own length, as the others do here."""
    model = bert_jax.load(directory)
    model.embedder = replace(model.embedder, max_length=model.config.max_positions, default_prompt=None)
    return model


def open_classifier(directory: str):
    model = bert_jax.load(directory)
    model.need("classify", "bench predict")
    model.calibration = calibration.NONE
    return model


def our_vectors(directory: str) -> Callable:
    return open_embedder(directory).embed


def our_logits(directory: str) -> Callable:
    model = open_classifier(directory)
    return lambda texts: np.stack(model.outcomes(model.kind, texts))


def sentence_transformers(directory: str) -> Callable:
    (library,) = libraries("sentence_transformers")
    model = library.SentenceTransformer(directory, device="cpu")
    model.max_seq_length = model[0].auto_model.config.max_position_embeddings
    return lambda texts: model.encode(texts, show_progress_bar=False)


def transformers(directory: str) -> Callable:
    torch, library = libraries("torch", "transformers")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = library.AutoModelForSequenceClassification.from_pretrained(directory).eval().to(device)
    tokenizer = library.AutoTokenizer.from_pretrained(directory)
    settings = {"padding": True, "truncation": True, "max_length": model.config.max_position_embeddings}

    @torch.inference_mode()
    def run(texts):
        logits = np.zeros((len(texts), model.config.num_labels), np.float32)
        order = np.argsort([len(text) for text in texts])
        for rows in np.split(order, range(ROWS, len(order), ROWS)):
            inputs = tokenizer([texts[i] for i in rows], return_tensors="pt", **settings).to(device)
            logits[rows] = model(**inputs).logits.cpu().numpy()
        return logits

    return run


def onnxruntime(directory: str, open_model: Callable, opener: str, output: str, finish: Callable) -> Callable:
    """The model through torch's exporter; our tokenizer before it, `finish(output, mask)` after it."""
    model, session = open_model(directory), onnx_session(directory, opener, output)

    def run(texts):
        results: list = [None] * len(texts)
        for rows, inputs in by_length(model, texts, ROWS):
            outputs = finish(session.run(None, inputs)[0], inputs["mask"])
            for row, result in zip(rows, outputs, strict=True):
                results[row] = result
        return np.stack(results)

    return run


def normalized_mean(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def unchanged(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return logits


# Verb -> how its model is opened, and its contenders by name: `make(directory)` gives a function of texts.
SUBJECTS: dict[str, tuple[Callable, dict[str, Callable]]] = {
    "embed": (
        open_embedder,
        {
            "bert-jax": our_vectors,
            "sentence-transformers": sentence_transformers,
            "onnxruntime": partial(
                onnxruntime, open_model=open_embedder, opener="AutoModel", output="last_hidden_state",
                finish=normalized_mean,
            ),
        },
    ),
    "predict": (
        open_classifier,
        {
            "bert-jax": our_logits,
            "transformers": transformers,
            "onnxruntime": partial(
                onnxruntime, open_model=open_classifier, opener="AutoModelForSequenceClassification",
                output="logits", finish=unchanged,
            ),
        },
    ),
}  # fmt: skip
