"""`bert-jax bench input`: from a prepared corpus to NumPy batches, and how many chips that would feed.

FLOPs of a row, forward and backward, are 6 x (L x layers x (4 H^2 + 2 H F + 2 L H) + K x (H^2 + H V)), a
multiply and an add counted as two: projections and feed-forward, the attention products, and the masked-word
head at K targets.
"""

import time

from bert_jax.data.config import DataConfig
from bert_jax.data.prepare import cores
from bert_jax.data.stream import Stream
from bert_jax.models.config import EncoderConfig

# Dense bfloat16 FLOP/s of a chip, as their makers state them.
CHIPS = {"TPU v4": 275e12, "TPU v5e": 197e12, "TPU v5p": 459e12, "TPU v6e": 918e12, "NVIDIA H200": 989e12}
SHARE = 0.5  # of the peak that a well-kept training step reaches
KINDS = (
    ("next sentence, tokens", {}),
    ("next sentence, whole words", {"unit": "word"}),
    ("next sentence, spans", {"unit": "span"}),
    ("full sentences, tokens", {"examples": "full_sentences"}),
)


def report(corpus: str, lengths: list[int], batch: int, seconds: float) -> str:
    lines = [f"{corpus}, batches of {batch}, {cores()} cores"]
    lines.append(f"{'':<28}" + "".join(f"{f'rows/s at {length}':>20}" for length in lengths))
    first = []
    for name, changes in KINDS:
        rates = [rate(corpus, length, batch, seconds, changes) for length in lengths]
        first = first or rates
        lines.append(f"{name:<28}" + "".join(f"{found:>20,.0f}" for found in rates))
    for state in ("plans made where they are missing", "plans cached"):
        begun = time.perf_counter()
        stream(corpus, lengths[-1], batch, {}).batch(1_000_000)
        lines.append(f"step 1,000,000 from a standing start, {state}: {time.perf_counter() - begun:.2f} s")
    lines.append(f"the first line feeds this many chips at {SHARE:.0%} of their peak (base, large):")
    for chip, peak in CHIPS.items():
        fed = (
            " / ".join(f"{found * flops(size, length) / (SHARE * peak):,.0f}" for size in ("base", "large"))
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


def flops(size: str, length: int) -> float:
    model = EncoderConfig.named(size)
    width, targets = model.hidden_size, DataConfig().targets(length)
    layer = 4 * width**2 + 2 * width * model.feed_forward + 2 * length * width
    return 6 * (length * model.layers * layer + targets * (width**2 + width * model.vocab_size))
