"""`lengths`: hidden states of published sizes with random weights, for rows of several lengths.

All sizes have BERT's vocabulary. The first is compared with each of the others, which take turns with it.
"""

from collections.abc import Callable, Sequence
from itertools import repeat

import jax
import numpy as np

from bert_jax.bench.timing import Machine, Turn, describe_load, timed
from bert_jax.hub.families import FAMILIES, resolve_size
from bert_jax.hub.layout import Layout
from bert_jax.report.prediction_page import markdown_table
from tests.bench.families import random_rows
from tests.bench.turns import Limits, interleaved, ratio

TOKENS = 2048  # of a call, in rows shorter than that


def make_forward(size: str, length: int) -> tuple[Callable, float]:
    """Return a function that computes the hidden states of some rows, and the GiB that it takes meanwhile."""
    name, config = resolve_size(size)
    config = config.replace(max_position_embeddings=max(length, config.max_position_embeddings))
    layout = Layout(config, FAMILIES[name or "bert"], pooler=False)
    params = jax.jit(layout.init)(jax.random.key(0))
    batch = random_rows(max(TOKENS // length, 1), length, config.vocab_size)

    def compute(params, batch):
        return layout.module.apply({"params": params}, batch)["hidden"]

    compiled = jax.jit(compute).lower(params, batch).compile()
    gibibytes = compiled.memory_analysis().temp_size_in_bytes / 2**30
    return lambda: timed(lambda: jax.block_until_ready(compiled(params, batch))), gibibytes


def compare_lengths(sizes: Sequence[str], lengths: Sequence[int], limits: Limits) -> str:
    machine, turns, rows = Machine(), list[Turn](), list[tuple[str, ...]]()
    for length in lengths:
        made = {size: make_forward(size, length) for size in sizes}
        seconds: dict[str, list[float]] = {size: [] for size in sizes}
        contenders = {size: run for size, (run, _) in made.items()}
        for run in contenders.values():
            run()  # the first call takes longer
        for size, _, turn in interleaved(contenders, repeat((), limits.rounds), limits):
            seconds[size].append(turn.seconds)
            turns.append(turn)
        for size in sizes:
            compared = "" if size == sizes[0] else str(ratio(seconds[sizes[0]], seconds[size]))
            what = f"{max(TOKENS // length, 1)} x {length:,}"
            rows.append((size, what, f"{np.median(seconds[size]):.2f} s", f"{made[size][1]:.2f}", compared))
    header = ["size", "rows x tokens", "hidden states", "GiB", f"times as long as {sizes[0]}"]
    return "\n".join([*markdown_table(header, rows), "", describe_load(machine.load_during(turns))])
