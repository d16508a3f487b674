"""`bert-jax bench all`: make README's table again with one command.

Each measurement runs as a command of its own, so that none is affected by the memory or the threads of another. Its
result is a line of results.jsonl in the output directory. If a run was killed, the same command resumes it after the
last line.
"""

import json
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from bert_jax.bench.measurements import INPUTS, LIBRARIES, MEASUREMENTS, Measurement, Row
from bert_jax.bench.turns import Ratio
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json, write_atomically
from bert_jax.report.plots import ACCENT, INK, drawn

PACKAGES = ("jax", "jaxlib", "flax", "torch", "transformers", "sentence-transformers", "onnxruntime")
PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Places:
    """The directories that replace the placeholders of a command, and the output directory."""

    given: Mapping[str, str | None]
    output: Path

    def directories(self) -> dict[str, Path]:
        known = {name: Path(path) for name, path in self.given.items() if path}
        return known | {"inputs": self.output / "inputs", "output": self.output}

    def words(self, command: str) -> list[str]:
        """Fill the command's placeholders and expand its patterns; raise Missing if something is missing."""
        directories = self.directories()
        words: list[str] = []
        for word in command.split():
            for name in PLACEHOLDER.findall(word):
                if name not in directories:
                    raise Missing(f"--{name} is not given")
            filled = PLACEHOLDER.sub(lambda match: str(directories[match[1]]), word)
            path = Path(filled.split("=")[-1].split(":")[0])
            if "{output}" in word or not PLACEHOLDER.search(word):
                words.append(filled)
            elif "*" in filled:
                words += sorted(glob(filled)) or missing(Path(filled))
            elif path.exists() or self.make_input(path):
                words.append(filled)
            else:
                missing(path)
        return words

    def make_input(self, path: Path) -> bool:
        """Make an input file from the data sets; return False if it is not one of INPUTS."""
        if path.parent != self.directories()["inputs"] or path.name not in INPUTS:
            return False
        make, needed = INPUTS[path.name]
        data = self.directories().get("data")
        if data is None:
            raise Missing("--data is not given")
        files = [data / name for name in needed]
        for file in files:
            if not file.exists():
                missing(file)
        make(path, *files)
        return True


class Missing(Exception):
    """Something that a measurement needs is missing."""


def missing(path: Path) -> NoReturn:
    raise Missing(f"{path} does not exist")


def measure_all(places: Places, only: Sequence[str], quick: bool) -> str:
    """Run the measurements that have no result yet, and write the table; raise if a measurement failed."""
    chosen = select(only)
    results, here = places.output / "results.jsonl", machine()
    failures = []
    for measurement in chosen:
        try:
            words = command_of(measurement, places, quick)
        except Missing as reason:
            print(f"{measurement.name}: left out: {reason}", flush=True)
            continue
        if any(line["command"] == words and line["machine"] == here for line in lines_of(results)):
            print(f"{measurement.name}: already measured", flush=True)
            continue
        print(f"{measurement.name}: bert-jax bench {shlex.join(words)}", flush=True)
        start = time.time()
        run = subprocess.run(
            [sys.executable, "-m", "bert_jax", "bench", *words],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if run.returncode:
            failures.append(measurement.name)
            continue
        line = {"name": measurement.name, "command": words, "seconds": time.time() - start, "quick": quick}
        line |= {"result": json.loads(run.stdout.splitlines()[-1]), "machine": here}
        append(results, line)
    newest = {line["name"]: line for line in lines_of(results) if line["quick"] == quick}
    lines = [newest[measurement.name] for measurement in MEASUREMENTS if measurement.name in newest]
    text = write_table(places.output, lines) if lines else ""
    if failures:
        raise BertJaxError(
            f"failed: {', '.join(failures)} (messages are above); the same command tries them again"
        )
    if not lines:
        raise BertJaxError("nothing was measured; the reasons are above")
    return text


def select(only: Sequence[str]) -> list[Measurement]:
    names = {measurement.name: measurement for measurement in MEASUREMENTS}
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise BertJaxError(f"no measurement {', '.join(unknown)}; there are {', '.join(names)}")
    return [names[name] for name in only] if only else list(MEASUREMENTS)


def command_of(measurement: Measurement, places: Places, quick: bool) -> list[str]:
    """Return the words after `bert-jax bench`. Leave out libraries that are not installed, and print a notice."""
    for module in measurement.needs:
        if not find_spec(module):
            raise Missing(f"{module} is not installed")
    words = places.words(measurement.command)
    installed = [name for name in measurement.against if all(map(find_spec, LIBRARIES[name]))]
    for name in set(measurement.against) - set(installed):
        print(f"{measurement.name}: without {name}, which is not installed", flush=True)
    words += ["--against", *installed] if installed else []
    words += places.words(measurement.quick) if quick else []
    return [*words, "--json"]


def lines_of(results: Path) -> list[dict]:
    """Read the results so far, without a last line that is incomplete."""
    if not results.exists():
        return []
    whole = results.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in whole]


def append(results: Path, line: dict) -> None:
    whole = [*lines_of(results), line]
    write_atomically(results, "".join(to_json(line) + "\n" for line in whole))


def machine() -> dict:
    """Return the processor, and the versions of Python and of the measured packages."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    cpus = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpus.read_text()) if cpus.exists() else []
    processor = names[0] if names else platform.processor() or platform.machine()
    return {"processor": processor, "python": platform.python_version(), "versions": versions}


def write_table(output: Path, lines: list[dict]) -> str:
    """Write table.md and table.png; return the text of table.md."""
    titles = {measurement.name: measurement for measurement in MEASUREMENTS}
    rows = [
        (line, row)
        for line in lines
        for row in titles[line["name"]].show(titles[line["name"]].title, line["result"])
    ]
    text = "\n".join([*facts(lines), "", *markdown(rows), "", *commands(lines)]) + "\n"
    write_atomically(output / "table.md", text)
    compared = [(row, Ratio(**row.ratio)) for _, row in rows if row.ratio]
    if compared:
        draw(compared, output / "table.png")
    return text


def facts(lines: Iterable[dict]) -> list[str]:
    """Write a sentence for each machine and set of versions on which the results were measured."""
    distinct = {json.dumps(line["machine"], sort_keys=True): line for line in lines}
    sentences = []
    for line in distinct.values():
        where, cores = line["machine"], cores_of(line)
        versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
        sentences.append(f"{cores}{where['processor']}, Python {where['python']}, {versions}.")
    return sentences


def cores_of(line: dict) -> str:
    cores = load_of(line).get("cores")
    return f"{cores} cores of " if cores else ""


def load_of(line: dict) -> dict:
    result = line["result"]
    return result.get("machine", {}) if isinstance(result, dict) else {}


def markdown(rows: Iterable[tuple[dict, Row]]) -> list[str]:
    lines = ["| | bert_jax | compared with | times as fast, 95% interval |", "|---|---|---|---|"]
    for line, row in rows:
        speed = str(Ratio(**row.ratio)) if row.ratio else ""
        busy = " (busy machine)" if load_of(line).get("busy") else ""
        lines.append(f"| {row.what} | {row.ours} | {row.other} | {speed}{busy} |")
    return lines


def commands(lines: Iterable[dict]) -> list[str]:
    return ["```sh", *(f"bert-jax bench {shlex.join(line['command'])}" for line in lines), "```"]


def draw(compared: Sequence[tuple[Row, Ratio]], path: Path) -> None:
    """Draw the ratios as bars with their intervals, and a line at 1, where both sides are equally fast."""
    names = [f"{row.what}\ncompared with {row.other}" for row, _ in compared][::-1]
    speeds = [speed for _, speed in compared][::-1]

    def bars(axes) -> None:
        positions = range(len(speeds))
        axes.barh(positions, [speed.median for speed in speeds], color=ACCENT, height=0.6)
        for y, speed in zip(positions, speeds, strict=True):
            if speed.low is not None and speed.high is not None:
                axes.plot([speed.low, speed.high], [y, y], color=INK, marker="|", markersize=7)
            axes.annotate(str(speed), (max(speed.median, speed.high or 0), y), xytext=(6, 0),
                          textcoords="offset points", va="center", fontsize=7)  # fmt: skip
        axes.axvline(1, color="#d95f02", linestyle="--", linewidth=1)
        axes.set_yticks(list(positions), names, fontsize=7)
        axes.set_xlabel("times as fast as the other library, with 95% intervals", fontsize=9)
        axes.margins(x=0.15)

    drawn(path, (11, 0.45 * len(speeds) + 1), bars)
