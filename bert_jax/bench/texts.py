"""`bert-jax bench embed` and `bench predict`: throughput and latency of a model, compared with other libraries.

All contenders get the same model, texts and threads. Latency is measured on all of these texts, one at a time; that of
the shortest tenth is given separately. The other libraries compute in float32 unless their name says otherwise, ours in
the requested dtype.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import repeat

import jax
import numpy as np

import bert_jax
from bert_jax.bench.libraries import by_length, libraries, onnx_session
from bert_jax.bench.profile import name_operations, profile, show
from bert_jax.bench.trace import on_host
from bert_jax.bench.turns import Limits, Machine, Ratio, Turn, compared, contending, describe, ratio
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.predictions import calibration
from bert_jax.predictions.whole_texts import WholeTexts
from bert_jax.text.lines import read_lines

ROWS = {"cpu": 32, "cuda": 512}  # batch size of the other libraries, chosen to be fast on the device
PERCENTILES = (50, 90, 99)
OURS = "bert-jax"


@dataclass(frozen=True)
class Subject:
    """The model and the texts to measure."""

    verb: str
    directory: str
    source: str | None = None  # file of texts; None: random words
    count: int = 500
    dtype: str = "float32"  # in which ours computes

    def open(self) -> tuple:
        """Return our model, the texts, and the number of tokens of each text."""
        model = SUBJECTS[self.verb][0](self.directory, self.dtype)
        texts = draw(model, self.source, self.count)
        encodings = model.tokenizer.encode(texts, max_length=model.config.max_positions)
        return model, texts, np.array([len(encoding.ids) for encoding in encodings])

    def makers(self, against: Sequence[str]) -> dict[str, tuple]:
        """Return the makers of the contenders and their arguments, by name; ours is the first."""
        makers = SUBJECTS[self.verb][1]
        ours = (in_both_ways, makers[OURS], self.directory, self.dtype)
        return {OURS: ours} | {name: (in_both_ways, makers[name], self.directory) for name in against}


def in_both_ways(make: Callable, *arguments) -> Callable:
    """Return a contender's function, which returns the outputs of all texts, or the seconds of each text alone."""
    run = make(*arguments)

    def call(texts: Sequence[str], alone: bool):
        if not alone:
            return run(texts)
        seconds = []
        for text in texts:
            start = time.perf_counter()
            run([text])
            seconds.append(time.perf_counter() - start)
        return seconds

    return call


def measure(subject: Subject, against: Sequence[str], limits: Limits, as_json: bool = False) -> str:
    _, texts, lengths = subject.open()
    machine = Machine()
    with contending(subject.makers(against)) as contenders:
        results, turns = compare(contenders, texts, lengths, limits)
    load, device = machine.during(turns), jax.devices()[0].device_kind
    facts = {"texts": len(texts), "tokens": float(lengths.mean()), "dtype": subject.dtype, "device": device}
    if as_json:
        return to_json(facts | {"machine": load, "of": results})
    rounds = results[OURS]["throughput"]["rounds"], results[OURS]["p50"]["rounds"]
    return "\n".join(
        [
            f"{len(texts)} texts of {lengths.mean():.1f} tokens on {device}, ours in {subject.dtype}; medians of "
            f"{rounds[0]} rounds in batches and {rounds[1]} one text at a time",
            *(line for name, result in results.items() for line in describe_contender(name, result)),
            describe(load),
        ]
    )


def compare(
    contenders: Mapping[str, Callable], texts: Sequence[str], lengths: np.ndarray, limits: Limits
) -> tuple[dict, list[Turn]]:
    """Return the figures of each contender, ours first, and the turns that they come from."""
    first = {name: contender(texts, False) for name, contender in contenders.items()}
    for contender in contenders.values():
        contender(texts, True)  # compile every shape before timing
    together: dict[str, list[Turn]] = {name: [] for name in contenders}
    alone: dict[str, list] = {name: [] for name in contenders}
    turns = []
    for name, _, turn in compared(contenders, repeat((texts, False)), limits, lambda _, turn: turn.seconds):
        together[name].append(turn)
        turns.append(turn)
    for name, latency, turn in compared(contenders, repeat((texts, True)), limits, lambda x, _: np.median(x)):
        alone[name].append(latency)
        turns.append(turn)
    short = np.argsort(lengths, kind="stable")[: max(len(texts) // 10, 1)]
    results = {}
    for name in contenders:
        seconds, cpu = np.array([(turn.seconds, turn.cpu) for turn in together[name]]).T
        ours, latency = np.array(alone[OURS]), np.array(alone[name])  # [rounds, texts]
        results[name] = {
            "texts_per_second": len(texts) / float(np.median(seconds)),
            "best_texts_per_second": len(texts) / float(seconds.min()),
            "cpu_ms": 1e3 * float(cpu.min()) / len(texts),
            **{f"p{p}_ms": 1e3 * float(np.percentile(latency, p)) for p in PERCENTILES},
            "short_ms": 1e3 * float(np.median(latency[:, short])),
            "first_seconds": first[name][1].seconds,
            "throughput": asdict(ratio([turn.seconds for turn in together[OURS]], seconds.tolist())),
            **{
                f"p{p}": asdict(ratio(*(np.percentile(x, p, axis=1) for x in (ours, latency))))
                for p in PERCENTILES
            },
            "cpu": float(cpu.min()) / min(turn.cpu for turn in together[OURS]),
            "apart": float(np.abs(first[name][0] - first[OURS][0]).max()),
        }
    return results, turns


def describe_contender(name: str, result: dict) -> list[str]:
    latency = ", ".join(f"p{p} {result[f'p{p}_ms']:.1f}" for p in PERCENTILES)
    lines = [
        f"{name:<22}{result['texts_per_second']:7.0f} ({result['best_texts_per_second']:.0f} at best) texts/s   "
        f"{result['cpu_ms']:6.2f} ms CPU per text   one text: {latency} ms, the shortest tenth "
        f"{result['short_ms']:.1f}   first call {result['first_seconds']:.1f} s"
    ]
    if name != OURS:
        lines.append(
            f"{'':<22}bert-jax is {Ratio(**result['throughput'])} times as fast in batches, "
            f"{Ratio(**result['p50'])} at p50 and {Ratio(**result['p99'])} at p99 of one text, {result['cpu']:.2f} by "
            f"CPU time; outputs differ by at most {result['apart']:.1e}"
        )
    return lines


class TracedTokenizer:
    """A tokenizer whose calls have a name in a trace."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __getattr__(self, name: str):
        value = getattr(self.tokenizer, name)
        if not callable(value):
            return value

        def call(*arguments, **settings):
            with on_host("tokenize"):
                return value(*arguments, **settings)

        return call


def profile_text(subject: Subject, calls: int, picture: str, as_json: bool) -> str:
    """Show where the time of a text of median length goes: as a picture, and as text or JSON."""
    name_operations()
    model, texts, lengths = subject.open()
    middle = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    text, run = [texts[middle]], SUBJECTS[subject.verb][2](model)
    model._tokenizer = TracedTokenizer(model.tokenizer)
    title = f"{subject.verb} of one text of {lengths[middle]} tokens, {subject.dtype}"
    return show(profile(title, lambda: run(text), calls, subject.dtype), picture, as_json)


def draw(model, source: str | None, count: int) -> list[str]:
    """Return at most `count` lines of the file, or random texts, always in the same order."""
    texts = [text for text in read_lines(source) if text.strip()] if source else random_texts(model, count)
    if not texts:
        raise BertJaxError(f"{source} holds no text; name a file with one text per line")
    return [texts[i] for i in np.random.RandomState(0).permutation(len(texts))[:count]]


def random_texts(model, count: int) -> list[str]:
    """Make texts of random words, most of them as long as a sentence and some as long as a paragraph."""
    random = np.random.RandomState(0)
    entries = [entry for entry in model.tokenizer.tokens(range(model.tokenizer.size)) if entry.isalpha()]
    if not entries:
        raise BertJaxError("the vocabulary has no words for random texts; name a file of texts, --input FILE")
    lengths = np.exp(random.normal(2.8, 0.7, count)).clip(2, 250).astype(int)
    return [" ".join(random.choice(entries, n)) for n in lengths]


def open_embedder(directory: str, dtype: str = "float32"):
    """Load an embedder that adds no prompt, and truncates at the encoder's maximum length as the others do here."""
    model = bert_jax.load(directory, dtype=dtype)
    model.embedder = replace(model.embedder, max_length=model.config.max_positions, default_prompt=None)
    return model


def open_classifier(directory: str, dtype: str = "float32"):
    model = bert_jax.load(directory, dtype=dtype)
    model.need(WholeTexts.heads, "bench predict")
    model.calibration = calibration.NONE
    return model


def embedding(model) -> Callable:
    return model.embed


def logits_of(model) -> Callable:
    return lambda texts: np.stack(model.outcomes(model.kind, texts))


def our_vectors(directory: str, dtype: str = "float32") -> Callable:
    return embedding(open_embedder(directory, dtype))


def our_logits(directory: str, dtype: str = "float32") -> Callable:
    return logits_of(open_classifier(directory, dtype))


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
        for rows, inputs in by_length(model, texts, ROWS["cpu"]):
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


# Verb -> (function that opens our model, contenders by name, function of an open model of ours). A contender is
# `make(directory)`, which returns a function of texts; the last function makes one from our open model.
SUBJECTS: dict[str, tuple[Callable, dict[str, Callable], Callable]] = {
    "embed": (
        open_embedder,
        {
            OURS: our_vectors,
            "sentence-transformers": sentence_transformers,
            "sentence-transformers-bfloat16": partial(sentence_transformers, dtype="bfloat16"),
            "onnxruntime": partial(
                onnxruntime, open_model=open_embedder, opener="AutoModel", output="last_hidden_state",
                finish=normalized_mean,
            ),
        },
        embedding,
    ),
    "predict": (
        open_classifier,
        {
            OURS: our_logits,
            "transformers": transformers,
            "onnxruntime": partial(
                onnxruntime, open_model=open_classifier, opener="AutoModelForSequenceClassification",
                output="logits", finish=unchanged,
            ),
        },
        logits_of,
    ),
}  # fmt: skip
