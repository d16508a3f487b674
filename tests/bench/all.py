"""`all`: make the guide's first tables again with one command.

Each measurement runs as a command of its own, so that none is affected by the memory or the threads of another. Its
result is a line of results.jsonl in the output directory. If a run was killed, the same command goes on after the last
line.
"""

import json
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from glob import glob
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from tests.bench.comparison import markdown, read_comparison
from tests.bench.measurements import INPUTS, LIBRARIES, MEASUREMENTS, Measurement
from tests.bench.result_lines import append_line, read_result_lines

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

    def fill(self, command: str) -> list[str]:
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
                words += sorted(glob(filled)) or refuse_missing(Path(filled))
            elif path.exists() or self.make_input(path):
                words.append(filled)
            else:
                refuse_missing(path)
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
                refuse_missing(file)
        make(path, *files)
        return True


class Missing(Exception):
    """Something that a measurement needs is missing."""


def refuse_missing(path: Path) -> NoReturn:
    raise Missing(f"{path} does not exist")


def measure_all(places: Places, only: Sequence[str]) -> str:
    """Run the measurements that have no result yet, and write the table; raise if a measurement failed."""
    chosen = select(only)
    results, here = places.output / "results.jsonl", software()
    failures = []
    for measurement in chosen:
        try:
            words = command_words(measurement, places)
        except Missing as reason:
            print(f"{measurement.name}: left out: {reason}", flush=True)
            continue
        if any(line["command"] == words and line["machine"] == here for line in read_result_lines(results)):
            print(f"{measurement.name}: already measured", flush=True)
            continue
        print(f"{measurement.name}: python -m tests.bench {shlex.join(words)}", flush=True)
        start = time.time()
        command = [sys.executable, "-m", "tests.bench", *words]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            failures.append(measurement.name)
            continue
        line = {"name": measurement.name, "command": words, "seconds": time.time() - start}
        line |= {"result": asdict(read_comparison(run.stdout.splitlines()[-1])), "machine": here}
        append_line(results, line)
    newest = {line["name"]: line for line in read_result_lines(results)}
    lines = [newest[measurement.name] for measurement in MEASUREMENTS if measurement.name in newest]
    text = table(lines) if lines else ""
    write_atomically(places.output / "table.md", text)
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


def command_words(measurement: Measurement, places: Places) -> list[str]:
    """Return the words after `python -m tests.bench`. Leave out libraries that are not installed, and say so."""
    for module in measurement.needs:
        if not find_spec(module):
            raise Missing(f"{module} is not installed")
    words = places.fill(measurement.command)
    installed = [name for name in measurement.against if all(map(find_spec, LIBRARIES[name]))]
    for name in set(measurement.against) - set(installed):
        print(f"{measurement.name}: without {name}, which is not installed", flush=True)
    words += ["--against", *installed] if installed else []
    return [*words, "--json"]


def software() -> dict:
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


def table(lines: list[dict]) -> str:
    titles = {measurement.name: measurement.title for measurement in MEASUREMENTS}
    rows = []
    for line in lines:
        for first, *others in read_comparison(json.dumps(line["result"])).cells():
            rows.append([f"{titles[line['name']]}: {first}", *others])
    commands = [f"python -m tests.bench {shlex.join(line['command'])}" for line in lines]
    return "\n".join([*facts(lines), "", *markdown(rows), "", "```sh", *commands, "```"]) + "\n"


def facts(lines: Iterable[dict]) -> list[str]:
    """Write a sentence for each machine and set of versions on which the results were measured."""
    distinct = {json.dumps(line["machine"], sort_keys=True): line for line in lines}
    sentences = []
    for line in distinct.values():
        where, cores = line["machine"], line["result"]["machine"]["cores"]
        versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
        sentences.append(f"{cores} cores of {where['processor']}, Python {where['python']}, {versions}.")
    return sentences
