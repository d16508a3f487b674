"""Time calls, and notice when other programs use the machine.

The CPU seconds of a call do not grow when other programs compete for the cores; the CPU seconds of these programs show
that the machine is busy.
"""

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.files import to_json

Figures = Mapping[str, float | None]  # name -> value; None if it is unknown

BUSY = 0.1  # share of the cores that other programs may use before the machine counts as busy
ROUNDS, FEWEST = 10, 3  # calls that are timed, at most and at least
SECONDS = 60.0  # no call starts after this time, except the first FEWEST
TRACED = 5  # calls in a trace
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Turn:
    """The wall-clock and CPU seconds of one call."""

    seconds: float
    cpu: float  # seconds of all its threads
    others: float | None = None  # CPU seconds that other programs used meanwhile; None if unknown


def timed(function: Callable, *arguments) -> tuple[Any, Turn]:
    """Call the function; return its result and its turn."""
    before, own, start = machine_cpu(), own_cpu(), time.perf_counter()
    result = function(*arguments)
    seconds, cpu, after = time.perf_counter() - start, own_cpu() - own, machine_cpu()
    others = None if before is None or after is None else max(after - before - cpu, 0.0)
    return result, Turn(seconds, cpu, others)


def timed_rounds(function: Callable, *arguments) -> list[Turn]:
    """Make the same call several times; return the turns."""
    start, turns = time.monotonic(), list[Turn]()
    while len(turns) < FEWEST or (len(turns) < ROUNDS and time.monotonic() - start < SECONDS):
        turns.append(timed(function, *arguments)[1])
    return turns


def text_figures(
    run: Callable[[Sequence[str]], object], texts: Sequence[str], lengths: np.ndarray
) -> tuple[Figures, list[Turn]]:
    """Return the figures of a function of texts, and the turns that they come from."""
    _, first = timed(run, texts)
    warmed_seconds(run, texts)  # compiles every shape before it is timed
    batches = timed_rounds(run, texts)
    rounds = [timed(warmed_seconds, run, texts) for _ in range(FEWEST)]
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


def warmed_seconds(run: Callable[[Sequence[str]], object], texts: Sequence[str]) -> list[float]:
    """Return the seconds of each text in a call of its own."""
    seconds = []
    for text in texts:
        start = time.perf_counter()
        run([text])
        seconds.append(time.perf_counter() - start)
    return seconds


def open_profile(directory: str) -> Path:
    """Make the directory that traces are written to; call this before the programs to trace are compiled.

    A program of the compilation cache may have the operation names of another version of the code, so the names become
    part of its key.
    """
    import jax

    Path(directory).mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_include_metadata_in_key", True)
    return Path(directory)


def trace_calls(function: Callable, directory: Path) -> None:
    """Write JAX's own trace of some calls, which must wait for their results."""
    import jax

    with jax.profiler.trace(directory):
        for _ in range(TRACED):
            function()


def own_cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def machine_cpu() -> float | None:
    """Return the CPU seconds that all programs have used and a hypervisor took; None if the system does not say."""
    with suppress(OSError, ValueError):
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
        return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
    return None


@dataclass(frozen=True)
class Machine:
    """The number of cores, and the load before anything was measured."""

    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def load_during(self, turns: Iterable[Turn]) -> dict[str, float | bool | None]:
        """Return facts about the load. `others`: cores that other programs used during the turns; None if unknown."""
        turns = list(turns)
        known = [turn.others for turn in turns if turn.others is not None]
        others = sum(known) / sum(turn.seconds for turn in turns) if len(known) == len(turns) else None
        # The load may come from a measurement just before, so it counts only if `others` is unknown.
        busy = self.load > self.cores if others is None else others > BUSY * self.cores
        return {"cores": self.cores, "load": self.load, "others": others, "busy": busy}


def describe_load(machine: dict) -> str:
    others = "an unknown number" if machine["others"] is None else f"{machine['others']:.2f}"
    line = f"machine: load {machine['load']:.1f} before, other programs used {others} of {machine['cores']} cores"
    return line + " meanwhile" + (" - BUSY: measure again when it is quiet" if machine["busy"] else "")


@dataclass(frozen=True)
class MeasuredTurns:
    """The figures of each measured variant, under the same names, and the load of the machine meanwhile."""

    title: str
    figures: dict[str, Figures]  # variant -> its figures
    machine: dict

    def shown(self, as_json: bool) -> str:
        """Return a JSON object, or a table with a column for each variant."""
        if as_json:
            return to_json(asdict(self))
        variants = list(self.figures.values())
        names = {name: name.replace("_", " ") for name in variants[0]}
        width = max(map(len, names.values()))
        lines = [self.title, " " * width + "".join(f"{variant:>16}" for variant in self.figures)]
        for name, text in names.items():
            lines.append(f"{text:<{width}}" + "".join(f"{rounded(values[name]):>16}" for values in variants))
        return "\n".join([*lines, describe_load(self.machine)])


def rounded(value: float | None) -> str:
    """Write a figure with three digits, or all those before the decimal point.

    >>> rounded(12345.6), rounded(12.345), rounded(0.012345), rounded(None)
    ('12,346', '12.3', '0.0123', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
