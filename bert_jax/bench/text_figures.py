"""The figures of a function of texts: texts per second in batches, and milliseconds of one text alone."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from bert_jax.bench.timing import FEWEST, Figures, Turn, timed, timed_rounds

PERCENTILES = (50, 90, 99)


def text_figures(
    run: Callable[[Sequence[str]], object], texts: Sequence[str], lengths: np.ndarray
) -> tuple[Figures, list[Turn]]:
    """Return the figures of a function of texts, and the turns that they come from."""
    _, first = timed(run, texts)
    seconds_alone(run, texts)  # compiles every shape before it is timed
    batches = timed_rounds(run, texts)
    rounds = [timed(seconds_alone, run, texts) for _ in range(FEWEST)]
    milliseconds = 1e3 * np.array([seconds for seconds, _ in rounds])  # [rounds, texts]
    short = np.argsort(lengths, kind="stable")[: max(len(texts) // 10, 1)]
    speed = len(texts) / float(np.median([turn.seconds for turn in batches]))
    figures = {
        "texts_per_second": speed,
        "tokens_per_second": speed * float(lengths.mean()),
        "cpu_ms_per_text": 1e3 * min(turn.cpu for turn in batches) / len(texts),
        **{f"one_text_p{p}_ms": float(np.percentile(milliseconds, p)) for p in PERCENTILES},
        "one_short_text_ms": float(np.median(milliseconds[:, short])),
        "first_call_seconds": first.seconds,
    }
    return figures, [*batches, *(turn for _, turn in rounds)]


def seconds_alone(run: Callable[[Sequence[str]], object], texts: Sequence[str]) -> list[float]:
    """Return the seconds of each text in a call of its own."""
    seconds = []
    for text in texts:
        start = time.perf_counter()
        run([text])
        seconds.append(time.perf_counter() - start)
    return seconds
