"""`bert-jax bench input`: speed from a prepared corpus to NumPy batches, and how many chips this would feed."""

from bert_jax.bench.turns import Machine, Turn, describe, timed
from bert_jax.core.files import to_json
from bert_jax.data.corpus.chunks import cores
from bert_jax.data.corpus.config import DataConfig
from bert_jax.data.corpus.stream import Stream
from bert_jax.models.config import EncoderConfig
from bert_jax.models.cost import pre_training_flops
from bert_jax.pod.preflight_checks import rows_per_second
from bert_jax.training.chips import PEAKS

SHARE = 0.5  # share of a chip's peak that a good training step reaches
KINDS: tuple[tuple[str, dict[str, str]], ...] = (
    ("next sentence, tokens", {}),
    ("next sentence, whole words", {"unit": "word"}),
    ("next sentence, spans", {"unit": "span"}),
    ("full sentences, tokens", {"examples": "full_sentences"}),
)


def measure(corpus: str, lengths: list[int], batch: int, seconds: float, as_json: bool = False) -> str:
    machine, turns = Machine(), list[Turn]()
    for length in lengths:  # fail now if the corpus has too little text for a length
        next(stream(corpus, length, batch).batches())
    rates: dict[str, list[float]] = {}
    for name, changes in KINDS:
        rates[name] = []
        for length in lengths:
            rate, turn = timed(rows_per_second, data_config(corpus, length, batch, changes), 0, seconds)
            rates[name].append(rate)
            turns.append(turn)
    starts = {}
    for state in ("plans to be made", "plans cached"):
        _, turn = timed(lambda: stream(corpus, lengths[-1], batch).batch(1_000_000))
        starts[state] = turn.seconds
    results = {
        "lengths": lengths,
        "rows_per_second": rates,
        "cold_start": starts,
        "machine": machine.during(turns),
    }
    return (
        to_json(results) if as_json else in_words(results, f"{corpus}, batches of {batch}, {cores()} cores")
    )


def in_words(results: dict, title: str) -> str:
    lengths, rates = results["lengths"], results["rows_per_second"]
    lines = [title, f"{'':<28}" + "".join(f"{f'rows/s at {length}':>20}" for length in lengths)]
    for name, of_kind in rates.items():
        lines.append(f"{name:<28}" + "".join(f"{rate:>20,.0f}" for rate in of_kind))
    for state, seconds in results["cold_start"].items():
        lines.append(f"step 1,000,000 from a cold start, {state}: {seconds:.2f} s")
    lines.append(f"chips that the first line feeds, at {SHARE:.0%} of their peak (base / large):")
    for chip, peak in PEAKS.items():
        fed = [
            " / ".join(
                f"{rate * row_flops(size, length) / (SHARE * peak):,.0f}" for size in ("base", "large")
            )
            for rate, length in zip(next(iter(rates.values())), lengths, strict=True)
        ]
        lines.append(f"  {chip:<26}" + "".join(f"{chips:>20}" for chips in fed))
    return "\n".join([*lines, describe(results["machine"])])


def data_config(corpus: str, length: int, batch: int, changes: dict) -> DataConfig:
    return DataConfig(corpora=(corpus,), lengths=(length,), shares=(1.0,), batch_size=batch, **changes)


def stream(corpus: str, length: int, batch: int) -> Stream:
    return Stream(data_config(corpus, length, batch, {}), seed=0, steps=1_000_000)


def row_flops(size: str, length: int) -> float:
    return pre_training_flops(EncoderConfig.named(size), 1, length, DataConfig().targets(length))
