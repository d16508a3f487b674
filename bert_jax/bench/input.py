"""`bert-jax bench input`: from a prepared corpus to NumPy batches, and how many chips that would feed."""

import time

from bert_jax.data.corpus.config import DataConfig
from bert_jax.data.corpus.prepare import cores
from bert_jax.data.corpus.stream import Stream
from bert_jax.models.config import EncoderConfig
from bert_jax.models.cost import pre_training_flops
from bert_jax.pod.chips import PEAKS

SHARE = 0.5  # of the peak that a well-kept training step reaches
KINDS: tuple[tuple[str, dict[str, str]], ...] = (
    ("next sentence, tokens", {}),
    ("next sentence, whole words", {"unit": "word"}),
    ("next sentence, spans", {"unit": "span"}),
    ("full sentences, tokens", {"examples": "full_sentences"}),
)


def report(corpus: str, lengths: list[int], batch: int, seconds: float) -> str:
    lines = [f"{corpus}, batches of {batch}, {cores()} cores"]
    lines.append(f"{'':<28}" + "".join(f"{f'rows/s at {length}':>20}" for length in lengths))
    for length in lengths:  # what the corpus has too little for is said at once
        next(stream(corpus, length, batch, {}).batches())
    first: list[float] = []
    for name, changes in KINDS:
        rates = [rate(corpus, length, batch, seconds, changes) for length in lengths]
        first = first or rates
        lines.append(f"{name:<28}" + "".join(f"{found:>20,.0f}" for found in rates))
    for state in ("plans made where they are missing", "plans cached"):
        begun = time.perf_counter()
        stream(corpus, lengths[-1], batch, {}).batch(1_000_000)
        lines.append(f"step 1,000,000 from a standing start, {state}: {time.perf_counter() - begun:.2f} s")
    lines.append(f"the first line feeds this many chips at {SHARE:.0%} of their peak (base, large):")
    for chip, peak in PEAKS.items():
        fed = (
            " / ".join(
                f"{found * row_flops(size, length) / (SHARE * peak):,.0f}" for size in ("base", "large")
            )
            for found, length in zip(first, lengths, strict=True)
        )
        lines.append(f"  {chip:<26}" + "".join(f"{each:>20}" for each in fed))
    return "\n".join(lines)


def rate(corpus: str, length: int, batch: int, seconds: float, changes: dict) -> float:
    batches = stream(corpus, length, batch, changes).batches()
    for _ in range(5):  # plans, tracing, threads
        next(batches)
    begun, rows = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        rows += len(next(batches)["tokens"])
    return rows / (time.perf_counter() - begun)


def stream(corpus: str, length: int, batch: int, changes: dict) -> Stream:
    config = DataConfig(corpora=(corpus,), lengths=(length,), shares=(1.0,), batch=batch, **changes)
    return Stream(config, seed=0, steps=1_000_000)


def row_flops(size: str, length: int) -> float:
    return pre_training_flops(EncoderConfig.named(size), 1, length, DataConfig().targets(length))
