"""Metrics in the text format of Prometheus, with the names of text-embeddings-inference.

The numbers of all processes of a server lie in one file, a row for each process, so that any of them can tell the sums.
"""

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = tuple(1 << n for n in range(15))
METHODS = ("single", "batch")  # requests of one text, and of several
PARTS = ("http", "tokenizer", "model")  # of the work for a request
ERRORS = ("empty", "validation", "model", "overloaded", "unhealthy", "unauthorized", "body", "internal")


@dataclass(frozen=True)
class MetricFamily:
    """Metrics of one name: a counter or gauge for each value of a label, or a histogram."""

    name: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    bounds: tuple[float, ...] = ()
    type_: str = "counter"
    unit: str = ""

    @property
    def size(self) -> int:
        return len(self.bounds) + 2 if self.bounds else len(self.values)


FAMILIES = (
    MetricFamily("te_request_count", "Requests that were read.", "method", METHODS),
    MetricFamily("te_request_success", "Requests that were answered.", "method", METHODS),
    MetricFamily("te_request_failure", "Requests that were refused, or failed.", "err", ERRORS),
    MetricFamily("te_request_truncated_texts", "Texts that were too long and were truncated."),
    MetricFamily("te_request_tokens", "Tokens that were computed."),
    MetricFamily("bert_jax_cpu_seconds", "Seconds of CPU of each part of the server.", "part", PARTS, unit="seconds"),
    MetricFamily("te_queue_size", "Requests that wait or are being computed.", type_="gauge"),
    MetricFamily("te_request_duration", "Seconds from a request to its answer.", bounds=SECONDS, type_="histogram"),
    MetricFamily("te_request_tokenization_duration", "Seconds of tokenizing.", bounds=SECONDS, type_="histogram"),
    MetricFamily("te_request_queue_duration", "Seconds of waiting.", bounds=SECONDS, type_="histogram"),
    MetricFamily("te_request_inference_duration", "Seconds of computing.", bounds=SECONDS, type_="histogram"),
    MetricFamily("te_batch_next_size", "Rows that were computed together.", bounds=SIZES, type_="histogram"),
    MetricFamily("te_batch_next_tokens", "Tokens that were computed together.", bounds=SIZES, type_="histogram"),
)  # fmt: skip
OFFSETS = dict(
    zip((f.name for f in FAMILIES), np.cumsum([0, *(f.size for f in FAMILIES)]).tolist(), strict=False)
)
BY_NAME = {family.name: family for family in FAMILIES}


class Shared(NamedTuple):
    """The file of the numbers of several processes, and which of them this one is."""

    path: Path
    processes: int
    number: int


class Metrics:
    SIZE = sum(family.size for family in FAMILIES)
    BYTES = 8 * SIZE  # of one process

    def __init__(self, shared: Shared | None = None):
        if shared is None:
            self.all = np.zeros((1, self.SIZE))
            self.own = self.all[0]
        else:
            self.all = np.memmap(shared.path, np.float64, "r+", shape=(shared.processes, self.SIZE))
            self.own = self.all[shared.number]
            self.own[:] = 0  # those of a process that died here do not count on

    def count(self, name: str, value: str = "", by: float = 1) -> None:
        self.own[OFFSETS[name] + BY_NAME[name].values.index(value)] += by

    def set(self, name: str, number: float, value: str = "") -> None:
        self.own[OFFSETS[name] + BY_NAME[name].values.index(value)] = number

    def observe(self, name: str, value: float) -> None:
        bounds, start = BY_NAME[name].bounds, OFFSETS[name]
        self.own[start + bisect_left(bounds, value)] += 1
        self.own[start + len(bounds) + 1] += value

    def __str__(self) -> str:
        sums = self.all.sum(0)
        lines = []
        for family in FAMILIES:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.type_}"]
            values = sums[OFFSETS[family.name] :][: family.size].tolist()
            if family.bounds:
                total = 0.0
                for bound, count in zip((*family.bounds, "+Inf"), values, strict=False):
                    total += count
                    lines.append(f'{family.name}_bucket{{le="{bound}"}} {total:g}')
                lines += [f"{family.name}_sum {values[-1]!r}", f"{family.name}_count {total:.0f}"]
            else:
                for value, number in zip(family.values, values, strict=True):
                    label = f'{{{family.label}="{value}"}}' if family.label else ""
                    lines.append(f"{family.name}{label} {number:.{3 if family.unit else 0}f}")
        return "\n".join(lines) + "\n"
