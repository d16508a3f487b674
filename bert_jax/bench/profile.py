"""`bert-jax bench train --profile`: where the time of a step goes, and how long each part should take.

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
from typing import Any

import jax
import numpy as np

from bert_jax.bench.parts import Part, parts_of
from bert_jax.bench.speeds import measured_speeds
from bert_jax.bench.trace import Call, Operation, programs, traced
from bert_jax.bench.turns import Machine, Turn, describe, timed
from bert_jax.core.files import to_json
from bert_jax.report.plots import ACCENT, INK, PALE, above, drawn

SLOWEST = 12  # number of operations listed
COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer"
UNKNOWN = Part("operations of unknown programs", "", 0.0, 0.0, 1, "")


@dataclass
class Row:
    """The seconds of a part in a call: measured by direction, and expected."""

    forward: float = 0.0
    backward: float = 0.0
    neither: float = 0.0
    products: float = 0.0  # its FLOPs at the speed of a plain matrix product
    memory: float = 0.0  # its bytes at the speed of memory
    expected: float = 0.0  # the longer of the two for each operation, summed up
    runs: int = 0

    @property
    def seconds(self) -> float:
        return self.forward + self.backward + self.neither


@dataclass
class Profile:
    title: str
    seconds: float  # those of the call that is shown
    untraced: float  # median seconds of a call without a trace
    flops_per_second: float
    bytes_per_second: float
    machine: dict
    rows: dict[str, Row] = field(default_factory=dict)
    slowest: list[dict[str, Any]] = field(default_factory=list)


def name_operations() -> None:
    """Make every operation appear in a trace under its own name. Call this before JAX opens its devices.

    A program of the compilation cache may have the operation names of another version of the code, so the names become
    part of its key. A GPU runs many operations as one command buffer, which has one name, so these are turned off.
    """
    if COMMAND_BUFFERS not in (flags := os.environ.get("XLA_FLAGS", "")):
        os.environ["XLA_FLAGS"] = f"{flags} {COMMAND_BUFFERS}="
    jax.config.update("jax_compilation_cache_include_metadata_in_key", True)


def profile(
    title: str, function: Callable[[], object], calls: int, dtype: str, rows: frozenset[int] = frozenset()
) -> Profile:
    """Profile `function()`, which must wait for its results. `rows` are the numbers of rows a product may sum over."""
    machine = Machine()
    before = measured_speeds(dtype)
    function()
    untraced = [timed(function)[1] for _ in range(calls)]
    measured = traced(function, calls)
    shown = sorted(measured, key=lambda call: call.seconds)[(calls - 1) // 2]
    speeds = before.best(measured_speeds(dtype))  # a machine's speed changes with its load
    turns: list[Turn] = untraced + [call.turn for call in measured]
    result = Profile(
        title=title,
        seconds=shown.seconds,
        untraced=float(np.median([turn.seconds for turn in untraced])),
        flops_per_second=speeds.flops,
        bytes_per_second=speeds.bytes,
        machine=machine.during(turns),
    )
    fill(result, shown, parts_of_programs(shown.runs, rows))
    return result


def parts_of_programs(operations: Iterable[Operation], rows: frozenset[int]) -> dict[Operation, Part]:
    """Return the parts of the programs that ran.

    Several programs in memory may have the same name. The right one has the most operation names in common with the
    trace. It need not have all of them, because a GPU's trace also has names that are in no program's text.
    """
    names: defaultdict[str, set[str]] = defaultdict(set)
    for program, name in operations:
        names[program].add(name)
    best: dict[str, dict[str, Part]] = {}
    for name, text in programs():
        if name in names:
            candidates = best.get(name, {}), parts_of(text, rows)
            best[name] = max(candidates, key=lambda parts: len(names[name] & parts.keys()))
    return {(name, operation): part for name, parts in best.items() for operation, part in parts.items()}


def fill(result: Profile, call: Call, parts: Mapping[Operation, Part]) -> None:
    """Set the rows and the slowest operations of the result from a call."""
    rows: defaultdict[str, Row] = defaultdict(Row)
    operations: list[dict[str, Any]] = []
    for operation, seconds in call.operations.items():
        part, runs = parts.get(operation, UNKNOWN), call.runs[operation]
        if jax.default_backend() != "cpu":
            # A GPU's trace counts kernels, and an operation may have several.
            runs = min(runs, part.trips)
        row = rows[row_name(part)]
        match part.direction:
            case "":
                row.neither += seconds
            case "forward":
                row.forward += seconds
            case _:
                row.backward += seconds
        products = runs * part.flops / result.flops_per_second
        memory = runs * part.bytes / result.bytes_per_second
        row.products += products
        row.memory += memory
        row.expected += max(products, memory)
        row.runs += runs
        operations.append(
            {"name": operation[1], "part": row_name(part), "seconds": seconds, "runs": runs,
             "expected": max(products, memory), "text": part.text}
        )  # fmt: skip
    for name, seconds in call.host.items():
        rows[name].neither += seconds
    result.rows = dict(sorted(rows.items(), key=lambda item: -item[1].seconds))
    result.slowest = sorted(operations, key=lambda operation: -operation["seconds"])[:SLOWEST]


def row_name(part: Part) -> str:
    """Return the row of a part. Dense products have a row for each direction, because each is a different product."""
    return f"{part.name}, {part.direction}" if part.name == "dense products" else part.name


def show(result: Profile, picture: str | None, as_json: bool) -> str:
    if picture:
        draw(result, Path(picture))
    return to_json(asdict(result)) if as_json else in_words(result)


def in_words(result: Profile) -> str:
    unit, scale = ("ms", 1e3) if result.seconds < 0.5 else ("s", 1.0)
    lines = [
        f"{result.title}",
        f"one call {scale * result.seconds:.4g} {unit} under the trace, {scale * result.untraced:.4g} {unit} without "
        f"(medians); products at {result.flops_per_second / 1e9:,.0f} GFLOP/s, memory at "
        f"{result.bytes_per_second / 1e9:.1f} GB/s",
        f"{'':36}{unit:>9}{'share':>8}{'forward':>9}{'backward':>9}{'products':>9}{'memory':>9}{'expected':>9}{'runs':>7}",
    ]
    for name, row in result.rows.items():
        columns = (row.forward, row.backward, row.products, row.memory, row.expected)
        shown = "".join(f"{scale * value:9.3f}" if value else f"{'':9}" for value in columns)
        share = row.seconds / result.seconds
        lines.append(f"{name:36}{scale * row.seconds:9.3f}{share:8.1%}{shown}{row.runs or '':>7}")
    total = sum(row.seconds for row in result.rows.values())
    expected = sum(row.expected for row in result.rows.values())
    lines.append(f"{'all':36}{scale * total:9.3f}{total / result.seconds:8.1%}{'':36}{scale * expected:9.3f}")
    lines.append(f"the slowest operations ({unit}, expected, runs):")
    for o in result.slowest:
        figures = f"{scale * o['seconds']:8.3f}{scale * o['expected']:9.3f}{o['runs']:6}"
        lines.append(f"  {figures}  {o['part']}: {o['name']} {o['text']}")
    return "\n".join([*lines, describe(result.machine)])


def draw(result: Profile, path: Path) -> None:
    unit, scale = ("milliseconds", 1e3) if result.seconds < 0.5 else ("seconds", 1.0)
    names = list(result.rows)[::-1]
    rows = [result.rows[name] for name in names]

    def bars(axes) -> None:
        left = np.zeros(len(rows))
        for label, values, colour, hatch in (
            ("forward", [row.forward for row in rows], ACCENT, ""),
            ("backward", [row.backward for row in rows], PALE, "////"),
            ("neither", [row.neither for row in rows], "0.75", "...."),
        ):
            width = scale * np.array(values)
            axes.barh(names, width, left=left, color=colour, hatch=hatch, edgecolor="white", label=label)
            left += width
        expected = scale * np.array([row.expected for row in rows])
        known = expected > 0
        axes.plot(
            expected[known], np.arange(len(rows))[known], "D", color="#d95f02", markeredgecolor=INK,
            markersize=5, label="expected from FLOPs and bytes", clip_on=False,
        )  # fmt: skip
        for y, (row, end) in enumerate(zip(rows, left, strict=True)):
            axes.annotate(f"{row.seconds / result.seconds:.1%}", (max(end, expected[y]), y),
                          xytext=(6, 0), textcoords="offset points", va="center", fontsize=7)  # fmt: skip
        axes.set_xlabel(f"{unit} of {scale * result.seconds:.4g}: {result.title}", fontsize=8)
        axes.margins(x=0.1)
        above(axes, 4)

    path.parent.mkdir(parents=True, exist_ok=True)
    drawn(path, (9, 0.32 * len(rows) + 1.2), bars)
