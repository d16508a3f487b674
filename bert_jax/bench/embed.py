"""`bert-jax bench embed`: texts per second and the latency of one, side by side with what others use.

Everyone gets the same model, texts and threads, and they take turns, so that a machine's moods meet all of them.
CPU time is given too: unlike the clock's, it does not grow when other programs want the cores.
"""

import multiprocessing
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

import bert_jax
from bert_jax.bench.rivals import by_length, rivals, session_of
from bert_jax.errors import BertJaxError
from bert_jax.text.lines import read_lines

SAMPLE = 500
LATENCY_CALLS = 200
PAUSE = 0.3  # before a turn: until then OpenMP's threads spin after the one before


def report(
    directory: str, against: Sequence[str], source: str | None, rounds: int = 5, count: int = SAMPLE
) -> str:
    model = opened(directory)
    texts = drawn(model, source, count)
    encodings = model.tokenizer.encode(texts, max_length=model.config.max_positions)
    tokens = sum(len(encoding.ids) for encoding in encodings)
    short = min(texts, key=lambda text: abs(len(text) - 40))
    runners = {name: Runner(CONTENDERS[name], directory) for name in ("bert-jax", *against)}
    try:
        vectors = {
            name: runner.run(texts)[0] for name, runner in runners.items()
        }  # compiles, and warms caches
        turns: dict[str, list] = {name: [] for name in runners}
        for _ in range(rounds):
            for name, runner in runners.items():
                turns[name].append(runner.run(texts)[1:])
        alone = {name: runner.run([short], LATENCY_CALLS)[1:] for name, runner in runners.items()}
    finally:
        for runner in runners.values():
            runner.close()
    said = [f"{len(texts)} texts of {tokens / len(texts):.1f} tokens, {rounds} rounds in turn, median (best)"]
    ours = np.array(turns["bert-jax"])
    for name in runners:
        wall, cpu = np.array(turns[name]).T
        times = np.array(alone[name][0]) * 1e3
        said.append(
            f"{name:<22}{len(texts) / np.median(wall):7.0f} ({len(texts) / wall.min():.0f}) texts/s   "
            f"{1e3 * cpu.min() / len(texts):6.2f} ms CPU a text   "
            f"one text: p50 {np.percentile(times, 50):.1f} ms, p99 {np.percentile(times, 99):.1f} ms"
        )
        if name != "bert-jax":
            # Rounds are compared pairwise: both sides of a pair met the same machine.
            said.append(
                f"{'':<22}bert-jax is {np.median(wall / ours[:, 0]):.2f}x as fast by the clock, "
                f"{cpu.min() / ours[:, 1].min():.2f}x by CPU time; "
                f"vectors at most {np.abs(vectors[name] - vectors['bert-jax']).max():.1e} apart"
            )
    return "\n".join(said)


class Runner:
    """One contender in a process of its own, so that no one's idle threads spin in another's turn."""

    def __init__(self, contender: Callable, directory: str):
        """`contender(directory)` gives what makes an array of texts."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, contender, directory), daemon=True)
        self.process.start()
        theirs.close()
        self._answer()

    def run(self, texts: Sequence[str], calls: int = 1, pause: float = PAUSE):
        """(vectors, seconds, CPU seconds) of one call; of several, (vectors, a list of seconds, CPU seconds)."""
        time.sleep(pause)
        self.pipe.send((texts, calls))
        return self._answer()

    def _answer(self):
        try:
            answer = self.pipe.recv()
        except EOFError:
            raise BertJaxError("a contender's process ended; what it said stands above") from None
        if isinstance(answer, BertJaxError):
            raise answer
        return answer

    def close(self) -> None:
        self.pipe.close()
        self.process.join(timeout=10)


def serve(pipe, contender: Callable, directory: str) -> None:
    warnings.simplefilter("ignore")
    try:
        run = contender(directory)
    except BertJaxError as error:
        pipe.send(error)
        return
    pipe.send("ready")
    while True:
        try:
            texts, calls = pipe.recv()
        except EOFError:
            return
        start_cpu, times = time.process_time(), []
        for _ in range(calls):
            start = time.perf_counter()
            vectors = run(texts)
            times.append(time.perf_counter() - start)
        cpu = time.process_time() - start_cpu
        pipe.send((np.asarray(vectors), times[0] if calls == 1 else times, cpu))


def ours(directory: str) -> Callable:
    return opened(directory).embed


def opened(directory: str):
    """Our model; no one cuts a text at another length than the encoder's."""
    model = bert_jax.load(directory)
    model.embedder = replace(model.embedder, max_length=model.config.max_positions, default_prompt=None)
    return model


def drawn(model, source: str | None, count: int) -> list[str]:
    """So many lines of the file, or texts made up, in an order that is always the same."""
    texts = [text for text in read_lines(source) if text.strip()] if source else sampled(model, count)
    if not texts:
        raise BertJaxError(f"{source} holds no text; name a file with one on each line")
    return [texts[i] for i in np.random.RandomState(0).permutation(len(texts))[:count]]


def sampled(model, count: int) -> list[str]:
    """Texts of random words, most of them a sentence long and some a paragraph."""
    random = np.random.RandomState(0)
    entries = [entry for entry in model.tokenizer.tokens(range(model.tokenizer.size)) if entry.isalpha()]
    lengths = np.exp(random.normal(2.8, 0.7, count)).clip(2, 250).astype(int)
    return [" ".join(random.choice(entries, n)) for n in lengths]


def sentence_transformers(directory: str) -> Callable:
    (library,) = rivals("sentence_transformers")
    theirs = library.SentenceTransformer(directory, device="cpu")
    theirs.max_seq_length = theirs[0].auto_model.config.max_position_embeddings
    return lambda texts: theirs.encode(texts, show_progress_bar=False)


def onnxruntime(directory: str) -> Callable:
    """The encoder through torch's exporter; our tokenizer before it and our pooling behind it, in NumPy."""
    model, session = opened(directory), session_of(directory, "AutoModel", "last_hidden_state")

    def run(texts, rows_at_once=32):
        vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
        for rows, given in by_length(model, texts, rows_at_once):
            (hidden,) = session.run(None, given)
            mask = given["mask"]
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1)[:, None]
            vectors[rows] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return vectors

    return run


CONTENDERS = {"bert-jax": ours, "sentence-transformers": sentence_transformers, "onnxruntime": onnxruntime}
