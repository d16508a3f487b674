"""When each operation of a compiled program ran, from XLA's own trace, and what the host did meanwhile.

Operations run in parallel on the cores, and an operation that contains others (a loop, a call) does no work of its own.
So each moment is divided equally among the operations that run at it. If none runs, it counts for the program that is
executing, or else for the host. These shares add up to the time of the call.
"""

import math
import re
import tempfile
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import jax

from bert_jax.bench.timing import Turn, timed
from bert_jax.core.errors import BertJaxError

# Instructions that contain others; the contained ones have times of their own.
OUTER = re.compile(r"%(\S+) = .* (?:while|call|conditional)\(")
END = "end: "  # prefix of the event that marks the end of an operation, perhaps in another thread
HOST = "host: "  # prefix of what the host does, as `on_host` names it
PYTHON, DISPATCH, IDLE = "host: Python", "host: dispatch", "no operation runs"
# XLA's names of events that are not operations -> ours.
EXECUTE = "ThunkExecutor::Execute"
SPANS = {"PjitFunction": DISPATCH, EXECUTE: IDLE}
AT_ONCE = 1e-4  # seconds; events this close follow each other immediately

Operation = tuple[str, str]  # (program, name)


def on_host(name: str) -> AbstractContextManager:
    """Name what the host does in this context, for a trace."""
    return jax.profiler.TraceAnnotation(HOST + name)


@dataclass
class TraceEvent:
    """An event with its start and end, in seconds since the trace began."""

    start: float
    end: float
    label: str
    operation: Operation | None = None


@dataclass
class Call:
    """The time of a call of the traced function, and what it was spent on."""

    turn: Turn
    seconds: float
    operations: dict[Operation, float] = field(default_factory=dict)  # seconds of each one's share
    host: dict[str, float] = field(default_factory=dict)  # seconds when no operation ran, by activity
    runs: Counter[Operation] = field(default_factory=Counter)


def traced(function: Callable, calls: int) -> list[Call]:
    """Call `function()`, which must wait for its results, and trace each of the calls."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # tracing every Python call would slow down the function

    def call():
        with jax.profiler.TraceAnnotation(PYTHON):
            function()

    measured, outer = [], set[Operation]()
    for _ in range(calls):
        with tempfile.TemporaryDirectory() as directory:
            with jax.profiler.trace(directory, profiler_options=options):
                _, turn = timed(call)
            paths = sorted(Path(directory).rglob("*.xplane.pb"))
            if not paths:
                raise BertJaxError("jax.profiler wrote no trace on this machine, so --profile cannot be used")
            spans = list(read_spans(jax.profiler.ProfileData.from_file(str(paths[0]))))
        outer = outer or {(name, match) for name, text in live_programs() for match in OUTER.findall(text)}
        measured.append(shares([span for span in spans if span.operation not in outer], turn))
    return measured


def live_programs() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every compiled program in memory; several may have the same name."""
    for executable in jax.devices()[0].client.live_executables():
        for module in executable.hlo_modules():
            yield module.name, module.to_string()


def read_spans(profile) -> Iterator[TraceEvent]:
    """Yield the operations, and the other events that are named above."""
    started: defaultdict[Operation, list[tuple[float, float]]] = defaultdict(list)
    # Name of an operation -> (reported end, end of its own work) of each run.
    ends: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for plane in profile.planes:
        for line in plane.lines:
            executed = sorted(
                (event.end_ns / 1e9, event.start_ns / 1e9) for event in line.events if event.name == EXECUTE
            )
            for event in line.events:
                name, start, end = event.name, event.start_ns / 1e9, event.end_ns / 1e9
                if name.startswith(END):
                    ends[name.removeprefix(END)].append((end, own_end(end, executed)))
                elif name.startswith(HOST):
                    yield TraceEvent(start, end, name)
                elif known := [ours for theirs, ours in SPANS.items() if name.startswith(theirs)]:
                    yield TraceEvent(start, end, known[0])
                elif "hlo_op" in (stats := dict(event.stats)):
                    operation = str(stats.get("hlo_module", "")), str(stats["hlo_op"])
                    started[operation].append((start, end))
    for (program, name), times in started.items():
        times.sort()
        ended = sorted(ends[name])
        for (start, end), (following, _) in zip(times, [*times[1:], (math.inf, 0.0)], strict=True):
            # An operation whose work continues in other threads ends later than the call that started it.
            index = bisect(ended, (start, math.inf))
            if index < len(ended) and (reported := ended[index][0]) <= following:
                own = ended[index][1]
                # What the thread started before this operation did not wait for it.
                end = max(end, own if own >= start else reported)
            yield TraceEvent(start, end, name, (program, name))


def own_end(end: float, executed: list[tuple[float, float]]) -> float:
    """Return the actual end of an operation whose thread reported its end at `end`.

    The thread that finishes an operation may first run the operations that waited for it, and only then report its end.
    `executed` are the sorted (end, start) of the periods in which the thread ran operations.
    """
    last = bisect(executed, (end, math.inf)) - 1
    return executed[last][1] if last >= 0 and end - executed[last][0] < AT_ONCE else end


def shares(spans: list[TraceEvent], turn: Turn) -> Call:
    """Divide the time of the call among operations and host, moment by moment."""
    whole = next(span for span in spans if span.label == PYTHON)
    result = Call(turn, whole.end - whole.start)
    result.runs = Counter(span.operation for span in spans if span.operation)
    if not result.runs:
        raise BertJaxError(
            "the trace has no operations: this version of jax or this device does not record them"
        )
    operations, host = defaultdict[Operation, float](float), defaultdict[str, float](float)
    changes = []
    for number, span in enumerate(spans):
        start, end = max(span.start, whole.start), min(span.end, whole.end)
        if start < end:
            changes += [(start, 1, number), (end, 0, number)]
    running: dict[int, TraceEvent] = {}
    last = whole.start
    for now, begins, number in sorted(changes):
        computing = [span.operation for span in running.values() if span.operation]
        for operation in computing:
            operations[operation] += (now - last) / len(computing)
        if running and not computing:
            labels = [span.label for span in sorted(running.values(), key=lambda span: span.start)]
            host[IDLE if IDLE in labels else labels[-1]] += now - last
        last = now
        if begins:
            running[number] = spans[number]
        else:
            del running[number]
    result.operations, result.host = dict(operations), dict(host)
    return result
