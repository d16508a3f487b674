"""Texts per second of one adapter alone, and of many that share an encoder and its batches, in turn."""

import os
import statistics
import tempfile
from pathlib import Path

import bert_jax
from bert_jax.bench.timing import timed
from tests.bench.serving import resident_megabytes
from tests.support.adapters import write_adapter

ROUNDS = 7


def compare_adapters(model: str, texts: list[str], count: int, rank: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        directories = {
            str(n): write_adapter(Path(folder) / str(n), model, "classify", ("no", "yes"), seed=n, rank=rank)
            for n in range(count)
        }
        alone = bert_jax.load(directories["0"])
        alone.predict(texts)
        before = resident_megabytes(os.getpid())
        together = bert_jax.load(model, adapters=directories)
        names = [str(n % count) for n in range(len(texts))]
        together.predict(texts, names)
        grown = resident_megabytes(os.getpid()) - before
        seconds = [
            [
                timed(call)[1].seconds
                for call in (lambda: alone.classify(texts), lambda: together.predict(texts, names))
            ]
            for _ in range(ROUNDS)
        ]
    one, many = (len(texts) / statistics.median(turn) for turn in zip(*seconds, strict=True))
    share = statistics.median(first / second for first, second in seconds)
    return (
        f"one adapter {one:,.0f} texts/s, {count} adapters in common batches {many:,.0f} texts/s ({share:.0%}); the "
        f"encoder with all of them and its programs takes {grown:,.0f} MB"
    )
