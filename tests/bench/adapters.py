"""Texts per second of one adapter alone, and of many that share an encoder and its batches, in turn."""

import json
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import bert_jax
from bert_jax.bench.timing import timed
from tests.bench.serving import CLIENTS, Load, Side, put_load, resident_megabytes, running
from tests.support.adapters import write_adapter

ROUNDS = 7
CLASSIFY = "/models/{}/classify"
# Requests for each of the paths in turn.
REQUESTS = """
local paths = {%s}
local bodies = {%s}
local n = 0
request = function()
  n = n + 1
  return wrk.format(
    "POST", paths[n %% #paths + 1], {["Content-Type"] = "application/json"}, bodies[n %% #bodies + 1]
  )
end
"""


def compare_adapters(model: str, texts: list[str], count: int, rank: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        directories = write_adapters(model, count, rank, Path(folder))
        alone = bert_jax.load(directories["0"])
        alone.predict(texts)
        before = resident_megabytes(os.getpid())
        together = bert_jax.load(model, adapters=directories)
        names = [str(n % count) for n in range(len(texts))]
        together.predict(texts, names)
        grown = resident_megabytes(os.getpid()) - before
        seconds = [
            [
                timed(call)[1].seconds
                for call in (lambda: alone.classify(texts), lambda: together.predict(texts, names))
            ]
            for _ in range(ROUNDS)
        ]
    one, many = (len(texts) / statistics.median(turn) for turn in zip(*seconds, strict=True))
    share = statistics.median(first / second for first, second in seconds)
    return (
        f"one adapter {one:,.0f} texts/s, {count} adapters in common batches {many:,.0f} texts/s ({share:.0%}); the "
        f"encoder with all of them and its programs takes {grown:,.0f} MB"
    )


def compare_served_adapters(model: str, texts: list[str], count: int, rank: int, seconds: float) -> str:
    """Return the same of two servers, for clients that send one text a request."""
    serve = [sys.executable, "-m", "bert_jax", "serve"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directories = write_adapters(model, count, rank, folder)
        flags = [word for name, path in directories.items() for word in ("--adapter", f"{name}={path}")]
        sides = [
            Side("one adapter", [*serve, f"0={directories['0']}"], CLASSIFY.format("0")),
            Side(f"{count} adapters", [*serve, f"base={model}", *flags], CLASSIFY.format("0")),
        ]
        for side in sides:
            stack.enter_context(running(side))
        scripts = [write_requests(texts, names, folder) for names in (["0"], list(directories))]
        loads = [Load() for _ in sides]
        for side, script in zip(sides, scripts, strict=True):
            put_load(side, script, 1, CLIENTS, 5, Load())  # what is slow only at first
        for _ in range(ROUNDS):
            for side, script, load in zip(sides, scripts, loads, strict=True):
                put_load(side, script, 1, CLIENTS, seconds, load)
        memory = [resident_megabytes(side.process.pid) for side in sides if side.process]
    lines = [
        f"{side.name} served: {statistics.median(load.texts_per_second):,.0f} texts/s, p50 "
        f"{statistics.median(load.p50):.0f} ms, p99 {statistics.median(load.p99):.0f} ms, {megabytes:,.0f} MB, "
        f"{load.failures} failed"
        for side, load, megabytes in zip(sides, loads, memory, strict=True)
    ]
    turns = zip(*(load.texts_per_second for load in loads), strict=True)
    return "\n".join([*lines, f"share: {statistics.median(many / one for one, many in turns):.0%}"])


def write_adapters(model: str, count: int, rank: int, folder: Path) -> dict[str, Path]:
    return {
        str(n): write_adapter(folder / str(n), model, "classify", ("no", "yes"), seed=n, rank=rank)
        for n in range(count)
    }


def write_requests(texts: list[str], names: list[str], folder: Path) -> Path:
    paths = ",".join(f'"{CLASSIFY.format(name)}"' for name in names)
    bodies = ",".join(f"[==[{json.dumps({'inputs': [text]})}]==]" for text in texts)
    path = folder / f"{len(names)}.lua"
    path.write_text(REQUESTS % (paths, bodies))
    return path
