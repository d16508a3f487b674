"""`--profile`: where the time of a call goes, and how long each part should take.

Of several traced calls, the one with the median time is shown as a whole, so that its parts add up to its time. The
expected time of an operation is the longer of two: that of its matrix products at the speed of a plain product, and
that of its bytes at the speed of memory. Other arithmetic counts as free, so random numbers, exponentials and the like
take longer than expected if caches hold their operands.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jax
import numpy as np

from bert_jax.bench.program_parts import ProgramPart, read_parts
from bert_jax.bench.speeds import Speeds, measured_speeds
from bert_jax.bench.timing import Machine, describe_load, timed_rounds
from bert_jax.bench.trace import Call, Operation, live_programs, traced
from bert_jax.core.files import to_json
from bert_jax.report.plots import ACCENT, INK, PALE, put_legend_above, save_plot

CALLS = 5  # traced calls
COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer"
UNKNOWN = ProgramPart("operations of unknown programs", "", 0.0, 0.0, 1)


@dataclass
class PartTime:
    """The seconds of a part in a call: measured by direction, and expected."""

    forward: float = 0.0
    backward: float = 0.0
    neither: float = 0.0
    expected: float = 0.0  # from FLOPs and bytes
    flops: float = 0.0  # of its matrix products
    runs: int = 0

    @property
    def seconds(self) -> float:
        return self.forward + self.backward + self.neither


@dataclass
class Profile:
    title: str
    seconds: float  # those of the call that is shown
    untraced: float  # median seconds of a call without a trace
    speeds: Speeds
    machine: dict
    parts: dict[str, PartTime] = field(default_factory=dict)

    @property
    def unit(self) -> tuple[str, float]:
        """A unit of time, and how many of them are a second."""
        return ("ms", 1e3) if self.seconds < 0.5 else ("s", 1.0)

    def shown(self, picture: str, as_json: bool) -> str:
        """Draw the picture, and return a table or a JSON object."""
        draw(self, Path(picture))
        return to_json(asdict(self)) if as_json else describe_profile(self)


def name_operations() -> None:
    """Make every operation appear in a trace under its own name. Call this before JAX opens its devices.

    A program of the compilation cache may have the operation names of another version of the code, so the names become
    part of its key. A GPU runs many operations as one command buffer, which has one name, so these are turned off.
    """
    if COMMAND_BUFFERS not in (flags := os.environ.get("XLA_FLAGS", "")):
        os.environ["XLA_FLAGS"] = f"{flags} {COMMAND_BUFFERS}="
    jax.config.update("jax_compilation_cache_include_metadata_in_key", True)


def profile(title: str, function: Callable[[], object], dtype: str) -> Profile:
    """Profile `function()`, which must wait for its results."""
    machine = Machine()
    before = measured_speeds(dtype)
    function()
    untraced = timed_rounds(function)
    calls = traced(function, CALLS)
    shown = sorted(calls, key=lambda call: call.seconds)[(CALLS - 1) // 2]
    speeds = before.best(measured_speeds(dtype))  # a machine's speed changes with its load
    result = Profile(
        title,
        shown.seconds,
        float(np.median([turn.seconds for turn in untraced])),
        speeds,
        machine.load_during(untraced + [call.turn for call in calls]),
    )
    result.parts = part_times(shown, operation_parts(shown.runs), speeds)
    return result


def operation_parts(operations: Iterable[Operation]) -> dict[Operation, ProgramPart]:
    """Return the parts of the programs that ran.

    Several programs in memory may have the same name. The right one has the most operation names in common with the
    trace. It need not have all of them, because a GPU's trace also has names that are in no program's text.
    """
    names: defaultdict[str, set[str]] = defaultdict(set)
    for program, name in operations:
        names[program].add(name)
    best: dict[str, dict[str, ProgramPart]] = {}
    for name, text in live_programs():
        if name in names:
            candidates = best.get(name, {}), read_parts(text)
            best[name] = max(candidates, key=lambda parts: len(names[name] & parts.keys()))
    return {(name, operation): part for name, parts in best.items() for operation, part in parts.items()}


def part_times(call: Call, parts: Mapping[Operation, ProgramPart], speeds: Speeds) -> dict[str, PartTime]:
    """Return the times of a call by part, the longest first."""
    times: defaultdict[str, PartTime] = defaultdict(PartTime)
    for operation, seconds in call.operations.items():
        part, runs = parts.get(operation, UNKNOWN), call.runs[operation]
        if jax.default_backend() != "cpu":
            # A GPU's trace counts kernels, and an operation may have several.
            runs = min(runs, part.trips)
        time = times[part.name]
        match part.direction:
            case "":
                time.neither += seconds
            case "forward":
                time.forward += seconds
            case _:
                time.backward += seconds
        time.expected += runs * max(part.flops / speeds.flops, part.bytes / speeds.bytes)
        time.flops += runs * part.flops
        time.runs += runs
    for name, seconds in call.host.items():
        times[name].neither += seconds
    return dict(sorted(times.items(), key=lambda item: -item[1].seconds))


def describe_profile(result: Profile) -> str:
    unit, scale = result.unit
    lines = [
        result.title,
        f"one call {scale * result.seconds:.4g} {unit} under the trace, {scale * result.untraced:.4g} {unit} without "
        f"(medians); matrix products at {result.speeds.flops / 1e9:,.0f} GFLOP/s, memory at "
        f"{result.speeds.bytes / 1e9:.1f} GB/s",
        f"{'':36}{unit:>9}{'share':>8}{'forward':>9}{'backward':>9}{'expected':>9}{'runs':>7}",
    ]
    for name, time in result.parts.items():
        figures = (time.forward, time.backward, time.expected)
        shown = "".join(f"{scale * value:9.3f}" if value else f"{'':9}" for value in figures)
        share = time.seconds / result.seconds
        lines.append(f"{name:36}{scale * time.seconds:9.3f}{share:8.1%}{shown}{time.runs or '':>7}")
    total, expected = (
        sum(getattr(time, name) for time in result.parts.values()) for name in ("seconds", "expected")
    )
    lines.append(f"{'all':36}{scale * total:9.3f}{total / result.seconds:8.1%}{'':18}{scale * expected:9.3f}")
    return "\n".join([*lines, describe_load(result.machine)])


def draw(result: Profile, path: Path) -> None:
    unit, scale = result.unit
    names = list(result.parts)[::-1]
    times = [result.parts[name] for name in names]

    def bars(axes) -> None:
        left = np.zeros(len(times))
        for label, colour, hatch in (
            ("forward", ACCENT, ""), ("backward", PALE, "////"), ("neither", "0.75", "....")
        ):  # fmt: skip
            width = scale * np.array([getattr(time, label) for time in times])
            axes.barh(names, width, left=left, color=colour, hatch=hatch, edgecolor="white", label=label)
            left += width
        expected = scale * np.array([time.expected for time in times])
        known = expected > 0
        axes.plot(
            expected[known], np.arange(len(times))[known], "D", color="#d95f02", markeredgecolor=INK,
            markersize=5, label="expected from FLOPs and bytes", clip_on=False,
        )  # fmt: skip
        for y, (time, end) in enumerate(zip(times, left, strict=True)):
            axes.annotate(f"{time.seconds / result.seconds:.1%}", (max(end, expected[y]), y),
                          xytext=(6, 0), textcoords="offset points", va="center", fontsize=7)  # fmt: skip
        axes.set_xlabel(f"{unit} of {scale * result.seconds:.4g}: {result.title}", fontsize=8)
        axes.margins(x=0.1)
        put_legend_above(axes, 4)

    path.parent.mkdir(parents=True, exist_ok=True)
    save_plot(path, (9, 0.32 * len(times) + 1.2), bars)
