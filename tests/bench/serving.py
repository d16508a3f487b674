"""Texts per second, latency and memory of servers under the same load, in turn; and what computing without HTTP takes.

The load comes from wrk, a compiled program that takes little of the processor. All servers run during the whole
comparison, and only one of them is asked at a time.
"""

import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bert_jax.core.errors import BertJaxError
from bert_jax.export.onnx_directory import export_onnx

CLIENTS = 64  # that wait for answers at a time
MANY = 32  # texts of a large request
OUR_PATH = "/v1/embeddings"
STARTS = 600  # seconds within which a server must have started
RESTING = 10  # hundredths of a second of CPU time, in two seconds
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
BODIES = """
local bodies = {%s}
local n = 0
request = function()
  n = n %% #bodies + 1
  return wrk.format("POST", nil, {["Content-Type"] = "application/json"}, bodies[n])
end
"""


@dataclass
class Side:
    """A server that is compared: its command, to which a port is added, and where it embeds."""

    name: str
    command: list[str]
    path: str
    folder: str | None = None  # where it starts
    process: subprocess.Popen | None = None
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"


@dataclass
class Load:
    texts_per_second: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)  # milliseconds
    p99: list[float] = field(default_factory=list)
    failures: int = 0


def our_engines(model: str, exported: str) -> dict[str, tuple[str, str, str]]:
    """Return (directory, engine, dtype) by name."""
    return {
        "jax float32": (model, "jax", "float32"),
        "jax bfloat16": (model, "jax", "bfloat16"),
        "onnxruntime float32": (exported, "onnxruntime", "float32"),
        "onnxruntime int8": (exported, "onnxruntime", "int8"),
        "openvino bfloat16": (exported, "openvino", "bfloat16"),
        "openvino int8": (exported, "openvino", "int8"),
    }


def our_side(name: str, directory: str, engine: str, dtype: str, workers: int = 1) -> Side:
    command = [
        sys.executable, "-m", "bert_jax", "serve", f"model={directory}", "--engine", engine, "--dtype", dtype,
        "--workers", str(workers),
    ]  # fmt: skip
    return Side(f"bert_jax {name}{f', {workers} workers' if workers > 1 else ''}", command, OUR_PATH)


def ray_side(python: str, name: str, directory: str, engine: str, dtype: str) -> Side:
    command = [python, "-m", "tests.bench.ray_replicas", directory, "--engine", engine, "--dtype", dtype]
    return Side(f"Ray Serve {name}, 2 replicas", command, "/embed")


def infinity_side(program: str, model: str, engine: str) -> Side:
    """Return infinity-emb with one of its engines; that of ONNX finds the file of a local model only as `.`."""
    command = [
        program, "v2", "--model-id", ".", "--served-model-name", "model", "--device", "cpu",
        "--engine", engine, "--no-bettertransformer", "--host", "127.0.0.1",
    ]  # fmt: skip
    return Side(f"infinity {engine} float32", command, "/embeddings", model)


def copy_with_onnx(model: str, exported: str, folder: Path) -> str:
    """Copy a model with its ONNX file to where infinity-emb looks for one."""
    shutil.copytree(model, folder)
    shutil.copy(Path(exported) / "onnx" / "model.onnx", folder)
    return str(folder)


@contextmanager
def running(side: Side) -> Iterator[Side]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        side.port = free.getsockname()[1]
    quiet = {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile() as log:
        side.process = subprocess.Popen(
            [*side.command, "--port", str(side.port)],
            env=os.environ | quiet,
            cwd=side.folder,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until_it_answers(side, log)
            wait_until_it_rests(side)
            yield side
        finally:
            side.process.terminate()
            side.process.wait(60)


def wait_until_it_rests(side: Side) -> None:
    """Wait until nothing is compiled any more."""
    assert side.process is not None
    used, before = used_ticks(side.process.pid), -RESTING
    while used - before >= RESTING:
        time.sleep(2)
        before, used = used, used_ticks(side.process.pid)


def used_ticks(pid: int) -> int:
    """Return the CPU time that a process has used, in hundredths of a second."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))


def wait_until_it_answers(side: Side, log) -> None:
    for _ in range(10 * STARTS):
        assert side.process is not None
        if side.process.poll() is not None:
            log.seek(0)
            raise BertJaxError(f"{side.name} did not start: {log.read()[-300:].decode(errors='replace')}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{side.port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise BertJaxError(f"{side.name} did not answer within {STARTS} seconds")


def wait_until_idle(side: Side) -> None:
    """Wait until what clients asked who have left since is computed, where a server computes it still."""
    body = json.dumps({"model": "model", "input": "the last one"}).encode()
    request = urllib.request.Request(side.address, body, {"Content-Type": "application/json"})
    for _ in range(3):
        with urllib.request.urlopen(request, timeout=STARTS) as answer:
            answer.read()


def write_script(texts: Sequence[str], size: int, folder: Path) -> Path:
    """Write a script of requests of `size` texts each, for wrk."""
    groups = [list(texts[n : n + size]) for n in range(0, len(texts) - size + 1, size)]
    bodies = [json.dumps({"model": "model", "input": group if size > 1 else group[0]}) for group in groups]
    path = folder / f"{size}.lua"
    path.write_text(BODIES % ",".join(f"[==[{body}]==]" for body in bodies))
    return path


def put_load(side: Side, script: Path, size: int, clients: int, seconds: float, load: Load) -> None:
    command = [
        "wrk", "-t1", f"-c{clients}", f"-d{seconds:g}s", "--timeout", "120s", "--latency", "-s", script, side.address,
    ]  # fmt: skip
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    per_second = re.search(r"Requests/sec:\s+([0-9.]+)", output)
    assert per_second, output
    load.texts_per_second.append(size * float(per_second[1]))
    for share, values in (("50", load.p50), ("99", load.p99)):
        latency = re.search(rf"{share}%\s+([0-9.]+)(us|ms|s|m)\s", output)
        assert latency, output
        values.append(float(latency[1]) * UNITS[latency[2]])
    load.failures += sum(int(n) for n in re.findall(r"Non-2xx or 3xx responses: (\d+)", output))
    load.failures += sum(int(n) for n in re.findall(r"(?:connect|read|write|timeout) (\d+)", output))


def resident_megabytes(pid: int) -> float:
    """Return the memory of a process and of those that it started."""
    own = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024  # type: ignore[index]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(resident_megabytes(int(child)) for child in children)


def cpu_seconds(side: Side) -> dict[str, float]:
    """Return the CPU seconds of each part of a server of ours; of others, which do not tell them, nothing."""
    if side.path != OUR_PATH:
        return {}
    with urllib.request.urlopen(f"http://127.0.0.1:{side.port}/metrics") as answer:
        text = answer.read().decode()
    return {part: float(n) for part, n in re.findall(r'bert_jax_cpu_seconds\{part="(\w+)"\} ([0-9.]+)', text)}


def compute_without_http(
    connection, directory: str, engine: str, dtype: str, texts: list[str], seconds: float
):
    """Send texts per second of large calls, and the median of single texts in milliseconds."""
    from bert_jax.inference.load import load
    from bert_jax.inference.text_vectors import EmbeddingPipeline

    model = load(directory, engine=engine, dtype=dtype)
    embed = EmbeddingPipeline(model)
    embed(texts)
    for text in texts[:100]:
        embed([text])
    while connection.poll(None) and connection.recv():
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            embed(texts[:512])
            done += 512
        per_second = done / (time.perf_counter() - begun)
        singles = []
        for text in texts[:100]:
            begun = time.perf_counter()
            embed([text])
            singles.append(1e3 * (time.perf_counter() - begun))
        connection.send((per_second, statistics.median(singles)))


def compare_servers(
    model: str,
    data: str,
    peer: str | None,
    peer_engines: Sequence[str],
    ray_python: str | None,
    workers: Sequence[int],
    only: Sequence[str],
    rounds: int,
    seconds: float,
) -> None:
    """Print a table of all servers, for requests of one text and of many."""
    if shutil.which("wrk") is None:
        raise BertJaxError("the load comes from wrk; install it with the system's packages")
    rows = [line.rstrip("\n").split("\t") for line in Path(data).read_text("utf-8").splitlines()]
    texts = [text for row in rows for text in row[5:7]]
    random.Random(0).shuffle(texts)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        exported = str(folder / "exported")
        calibration_data = folder / "texts.txt"
        calibration_data.write_text("\n".join(texts), "utf-8")
        export_onnx(model, exported, "auto", str(calibration_data))
        ours = {name: of for name, of in our_engines(model, exported).items() if not only or name in only}
        sides = []
        if peer:
            copied = copy_with_onnx(model, exported, folder / "peer")
            sides = [infinity_side(peer, copied, engine) for engine in peer_engines]
        sides += [our_side(name, *of, number) for name, of in ours.items() for number in workers]
        sides += [ray_side(ray_python, name, *of) for name, of in ours.items() if ray_python]
        context = multiprocessing.get_context("spawn")
        plain = {}
        for name, of in ours.items():
            connection, theirs = context.Pipe()
            args = (theirs, *of, texts, seconds)
            process = context.Process(target=compute_without_http, args=args, daemon=True)
            process.start()
            plain[f"bert_jax {name}"] = connection
        for side in sides:
            stack.enter_context(running(side))
            print(f"{side.name} runs", flush=True)
        scripts = {size: write_script(texts, size, folder) for size in (1, MANY)}
        loads = {(side.name, size): Load() for side in sides for size in (1, MANY)}
        quiet = {side.name: Load() for side in sides}
        alone: dict[str, list[tuple[float, float]]] = {name: [] for name in plain}
        shares: dict[str, dict[str, float]] = {}
        for side in sides:
            put_load(side, scripts[MANY], MANY, CLIENTS, 3, Load())  # what is slow only at first
        for _ in range(rounds):
            for side in sides:
                for size in (1, MANY):
                    wait_until_idle(side)
                    before = cpu_seconds(side), resource.getrusage(resource.RUSAGE_CHILDREN)
                    put_load(side, scripts[size], size, CLIENTS, seconds, loads[side.name, size])
                    if size == 1 and before[0]:
                        shares[side.name] = measure_shares(side, *before)
                wait_until_idle(side)
                put_load(side, scripts[1], 1, 1, min(seconds, 5), quiet[side.name])
                if connection := plain.get(side.name):
                    connection.send(True)
                    alone[side.name].append(connection.recv())
        memory = {side.name: resident_megabytes(side.process.pid) for side in sides if side.process}
    print_table(sides, loads, quiet, alone, shares, memory)


def measure_shares(side: Side, cpu: dict[str, float], children) -> dict[str, float]:
    """Return which share of the CPU time each part took, the client included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = {part: seconds - cpu[part] for part, seconds in cpu_seconds(side).items()}
    spent["client"] = used.ru_utime + used.ru_stime - children.ru_utime - children.ru_stime
    return {part: seconds / sum(spent.values()) for part, seconds in spent.items()}


def print_table(sides, loads, quiet, alone, shares, memory) -> None:
    base = sides[0].name
    for size in (1, MANY):
        print(
            f"\n{CLIENTS} clients, {size} text{'s' * (size > 1)} a request: texts/s, p50 and p99 in ms, to {base}"
        )
        for side in sides:
            load, reference = loads[side.name, size], loads[base, size]
            ratios = [a / b for a, b in zip(load.texts_per_second, reference.texts_per_second, strict=True)]
            per_second, p50, p99 = map(statistics.median, (load.texts_per_second, load.p50, load.p99))
            line = (
                f"{side.name:32} {per_second:7.0f} {p50:7.0f} {p99:7.0f}   {statistics.median(ratios):.2f} "
            )
            line += f"({min(ratios):.2f} to {max(ratios):.2f})"
            if side.name in alone:
                plain = [per_second for per_second, _ in alone[side.name]]
                shares_of_plain = [a / b for a, b in zip(load.texts_per_second, plain, strict=True)]
                line += f", {statistics.median(shares_of_plain):.0%} of {statistics.median(plain):.0f} without HTTP"
            print(line + (f", {load.failures} failed" if load.failures else ""))
    print(
        "\none quiet client: p50 in ms, and that of the model without HTTP; memory in MB; shares of CPU, one text"
    )
    for side in sides:
        line = f"{side.name:32} {statistics.median(quiet[side.name].p50):7.1f}"
        if side.name in alone:
            singles = [single for _, single in alone[side.name]]
            ratios = [p50 / single for p50, single in zip(quiet[side.name].p50, singles, strict=True)]
            line += f" {statistics.median(singles):7.1f} ({statistics.median(ratios):.2f})"
        parts = ", ".join(f"{part} {share:.0%}" for part, share in shares.get(side.name, {}).items())
        print(f"{line}   {memory[side.name]:.0f} MB   {parts}")
