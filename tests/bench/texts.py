"""`embed` and `predict`: throughput and latency of a model, compared with other libraries or with other models of ours.

All contenders get the same texts and, but for other models, the same directory. Latency is that of all texts, one at a
time. The other libraries compute in float32 unless their name says otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path

import numpy as np

import bert_jax
from bert_jax.bench.timing import Machine, Turn, warmed_seconds
from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.predictions import calibration
from bert_jax.predictions.whole_text_kind import WholeTextKind
from tests.bench.comparison import Comparison, Row, dtype_of, dtype_ratios
from tests.bench.libraries import length_batches, libraries, onnx_session
from tests.bench.turns import OURS, Limits, interleaved, is_ours, running_processes

ROWS = {"cpu": 32, "cuda": 512}  # batch size of the other libraries, chosen to be fast on the device


def open_embedder(directory: str, dtype: str = "float32"):
    """Load an embedder that adds no prompt, and truncates at the encoder's maximum length as the others do here."""
    model = Embedder.load(directory, dtype=dtype)
    model.embedder = replace(
        model.embedder, max_length=model.config.max_position_embeddings, default_prompt=None
    )
    return model


def open_classifier(directory: str, dtype: str = "float32"):
    model = bert_jax.load(directory, dtype=dtype)
    model.require_head(WholeTextKind.heads, "predict")
    model.calibration = calibration.UNCALIBRATED
    return model


def our_vectors(directory: str, dtype: str = "float32") -> Callable:
    return open_embedder(directory, dtype).encode


def our_logits(directory: str, dtype: str = "float32") -> Callable:
    model = open_classifier(directory, dtype)
    compute_outcomes = OutcomePipeline(model, model.kind)
    return lambda texts: np.stack([outcome.raw for outcome in map_texts(texts, compute_outcomes)])


def torch_device() -> str:
    (torch,) = libraries("torch")
    return "cuda" if torch.cuda.is_available() else "cpu"


def sentence_transformers(directory: str, dtype: str = "float32") -> Callable:
    (library,) = libraries("sentence_transformers")
    device = torch_device()
    model = library.SentenceTransformer(directory, device=device, model_kwargs={"dtype": dtype})
    model.max_seq_length = model[0].auto_model.config.max_position_embeddings
    model.default_prompt_name = None  # ours adds no prompt either
    return lambda texts: model.encode(texts, batch_size=ROWS[device], show_progress_bar=False)


def transformers(directory: str) -> Callable:
    torch, library = libraries("torch", "transformers")
    device = torch_device()
    model = library.AutoModelForSequenceClassification.from_pretrained(directory).eval().to(device)
    tokenizer = library.AutoTokenizer.from_pretrained(directory)
    settings = {"padding": True, "truncation": True, "max_length": model.config.max_position_embeddings}

    @torch.inference_mode()
    def run(texts):
        logits = np.zeros((len(texts), model.config.num_labels), np.float32)
        order = np.argsort([len(text) for text in texts])
        for rows in np.split(order, range(ROWS[device], len(order), ROWS[device])):
            inputs = tokenizer([texts[i] for i in rows], return_tensors="pt", **settings).to(device)
            logits[rows] = model(**inputs).logits.cpu().numpy()
        return logits

    return run


def onnxruntime(directory: str, open_model: Callable, opener: str, output: str, finish: Callable) -> Callable:
    """Return a function of texts: our tokenizer, the model as torch exports it, then `finish(output, mask)`."""
    model, session = open_model(directory), onnx_session(directory, opener, output)

    def run(texts):
        results: list = [None] * len(texts)
        for rows, inputs in length_batches(model, texts, ROWS["cpu"]):
            outputs = finish(session.run(None, inputs)[0], inputs["mask"])
            for row, result in zip(rows, outputs, strict=True):
                results[row] = result
        return np.stack(results)

    return run


def normalized_mean(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


# Verb -> contenders by name. A contender is `make(directory)`, which returns a function of texts.
CONTENDERS: dict[str, dict[str, Callable]] = {
    "embed": {
        OURS: our_vectors,
        "sentence-transformers": sentence_transformers,
        "sentence-transformers-bfloat16": partial(sentence_transformers, dtype="bfloat16"),
        "onnxruntime": partial(
            onnxruntime, open_model=open_embedder, opener="AutoModel", output="last_hidden_state",
            finish=normalized_mean,
        ),
    },
    "predict": {
        OURS: our_logits,
        "transformers": transformers,
        "onnxruntime": partial(
            onnxruntime, open_model=open_classifier, opener="AutoModelForSequenceClassification", output="logits",
            finish=lambda logits, mask: logits,
        ),
    },
}  # fmt: skip


def make_contender(verb: str, name: str, *arguments: str) -> Callable:
    """Return a function of texts, which returns the outputs of all texts, or the seconds of each text alone."""
    run = CONTENDERS[verb][name](*arguments)
    return lambda texts, alone: warmed_seconds(run, texts) if alone else run(texts)


def compare_texts(
    verb: str,
    directory: str,
    texts: Sequence[str],
    dtypes: Sequence[str],
    against: Sequence[str],
    limits: Limits,
) -> Comparison:
    """Compare our model of the directory, in each of the dtypes, with libraries, or with our models of directories."""
    makers = {f"{OURS} {dtype}": (make_contender, verb, OURS, directory, dtype) for dtype in dtypes}
    for name in against:
        if name in CONTENDERS[verb]:
            makers[name] = (make_contender, verb, name, directory)
        elif Path(name).is_dir():
            makers[name] = (make_contender, verb, OURS, name, dtypes[0])
        else:
            known = suggest_name(name, [*CONTENDERS[verb]][1:])
            raise BertJaxError(f"--against {name} is neither a library nor a model directory; {known}")
    machine = Machine()
    with running_processes(makers) as contenders:
        together, alone, notes = measure_texts(contenders, texts, limits)
    turns = [turn for taken in (*together.values(), *alone.values()) for _, turn in taken]
    rows = text_rows(f"{verb} {len(texts):,} texts", together, alone, len(texts))
    return Comparison(rows, machine.load_during(turns), notes)


Taken = dict[str, list[tuple[list[float], Turn]]]  # contender -> the result and the turn of each round


def measure_texts(contenders: dict, texts: Sequence[str], limits: Limits) -> tuple[Taken, Taken, list[str]]:
    """Return the turns with all texts, those with the texts one at a time, and how the outputs differ from ours."""
    outputs = {name: contender(texts, False)[0] for name, contender in contenders.items()}
    for contender in contenders.values():
        contender(texts, True)  # compile every shape before timing
    (first, ours), *others = outputs.items()
    notes = [
        f"{name}: outputs differ from {first}'s by at most {np.abs(output - ours).max():.1e}"
        for name, output in others
        if output.shape == ours.shape  # or it is a model of other labels
    ]
    together: Taken = {name: [] for name in contenders}
    alone: Taken = {name: [] for name in contenders}
    for name, _, turn in interleaved(contenders, repeat((texts, False)), limits):
        together[name].append(([], turn))
    calls = interleaved(
        contenders, repeat((texts, True)), limits, lambda seconds, _: float(np.median(seconds))
    )
    for name, seconds, turn in calls:
        alone[name].append((seconds, turn))
    return together, alone, notes


def text_rows(title: str, together: Taken, alone: Taken, count: int) -> list[Row]:
    batches = {name: [turn.seconds for _, turn in taken] for name, taken in together.items()}
    speeds = {name: f"{count / np.median(seconds):,.0f}" for name, seconds in batches.items()}
    rows = rows_of_figure(f"{title} in batches", "texts/s", speeds, batches)
    latencies = {name: [seconds for seconds, _ in taken] for name, taken in alone.items()}
    for p in (50, 99):
        values = {name: np.percentile(rounds, p, axis=1).tolist() for name, rounds in latencies.items()}
        figures = {name: f"{1e3 * np.percentile(rounds, p):.1f}" for name, rounds in latencies.items()}
        rows += rows_of_figure(f"one at a time, p{p}", "ms", figures, values)
    return rows


def rows_of_figure(
    what: str, unit: str, figures: dict[str, str], values: dict[str, list[float]]
) -> list[Row]:
    """Return a row for each contender that is not ours, or one without a comparison."""
    ours = {dtype_of(name): figure for name, figure in figures.items() if is_ours(name)}
    others = [name for name in figures if not is_ours(name)]
    return [
        Row(what, ours, f"{name} {figures[name]}", dtype_ratios(values, name), unit) for name in others
    ] or [Row(what, ours, unit=unit)]
