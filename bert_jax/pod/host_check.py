"""What each host of a slice finds before its first run, in a process of its own, as JSON in the last line it prints.

    python -m bert_jax.pod.host_check DIRECTORY CONSTRAINTS COORDINATOR COUNT INDEX --config FILE:NAME ...

It runs on all hosts at once. All of them see DIRECTORY; CONSTRAINTS is a file of versions. A part that fails does not
keep the others from being measured: its error takes the place of its result.
"""

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from bert_jax import tasks
from bert_jax.core.errors import first_line
from bert_jax.core.files import to_json
from bert_jax.core.output import remove_path
from bert_jax.models.kernels.kernel_check import check_kernels
from bert_jax.pod.preflight_checks import corpus_config, rows_per_second
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.processes import join_processes
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import abstract_state, get_shardings, initial_state

PROBE = b"bert-jax " * 2**17  # what each host writes to the storage and reads again


def check_host(directory: Path, constraints: Path, spec: str, overrides: Sequence[str]) -> dict:
    index, (_, config) = jax.process_index(), tasks.load_config(spec, overrides)
    storage = attempt(lambda: check_storage(directory / f"probe-{index}"))
    # Hosts write a checkpoint together: one that cannot write would leave the others waiting.
    writable = multihost_utils.process_allgather(np.array("error" not in storage)).all()
    return {
        "host": index,
        "versions": compare_versions(constraints),
        "devices": describe_local_devices(),
        "kernels": attempt(check_kernels),
        "input": attempt(lambda: measure_input_speed(config)),
        "storage": storage,
        "checkpoint": attempt(lambda: measure_checkpoint(config, directory / "checkpoint"))
        if writable
        else {},
    }


def attempt(measure: Callable[[], dict]) -> dict[str, Any]:
    """Return what `measure` does, or its error: the other parts are worth knowing, too."""
    try:
        return measure()
    except Exception as error:  # whatever a machine that was never tried may raise
        return {"error": first_line(error)}


def compare_versions(constraints: Path) -> dict:
    """Return how many installed packages a file of constraints lists, and those that have another version."""
    listed: dict[str, set[str]] = {}  # a package may have several versions, each for some Pythons
    for name, version in re.findall(r"^([\w.-]+)==([\w.+-]+)", constraints.read_text(encoding="utf-8"), re.M):
        listed.setdefault(name, set()).add(version)
    installed = {}
    for name in listed:
        with suppress(metadata.PackageNotFoundError):  # of an extra that is not installed
            installed[name] = metadata.version(name)
    differing = {name: version for name, version in installed.items() if version not in listed[name]}
    described = {name: f"{version} instead of {max(listed[name])}" for name, version in differing.items()}
    return {"compared": len(installed), "differing": described, "python": sys.version.split()[0]}


def describe_local_devices() -> dict:
    device = jax.local_devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return {
        "kind": device.device_kind,
        "here": jax.local_device_count(),
        "count": jax.device_count(),
        "processes": jax.process_count(),
        "memory": limit,
    }


def measure_input_speed(config: RunConfig) -> dict:
    """Return the rows per second for each length of the rows; {} if the run reads no corpus."""
    data = corpus_config(config)
    if data is None or not data.corpora:
        return {}
    alone = {length: replace(data, lengths=(length,), length_ratios=(1.0,)) for length in data.lengths}
    return {str(length): rows_per_second(of_length, config.seed) for length, of_length in alone.items()}


def check_storage(probe: Path) -> dict:
    """Write a file to the storage of the runs, and read it again."""
    begun = time.perf_counter()
    probe.parent.mkdir(parents=True, exist_ok=True)
    probe.write_bytes(PROBE)
    same = probe.read_bytes() == PROBE
    probe.unlink()
    if not same:
        raise OSError(f"{probe} is not what was written there")
    return {"seconds": time.perf_counter() - begun}


def measure_checkpoint(config: RunConfig, directory: Path) -> dict:
    """Write a state of the run as a checkpoint and read it again, on all hosts together."""
    task, mesh = tasks.outline_run(config).task, make_mesh(config.mesh)
    state = jax.block_until_ready(make_noise(initial_state(task, config, mesh)))
    if jax.process_index() == 0:
        remove_path(directory)
    multihost_utils.sync_global_devices("empty")
    checkpoints, begun = Checkpoints(directory, config.checkpoints), time.perf_counter()
    checkpoints.save(0, state, {})
    checkpoints.finish()
    multihost_utils.sync_global_devices("saved")
    saved = time.perf_counter()
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    restored, _ = Checkpoints(directory, config.checkpoints).restore(0, abstract_state(task, config, mesh))
    jax.block_until_ready(restored)
    seconds = {"save": saved - begun, "restore": time.perf_counter() - saved}
    equal = jax.jit(lambda *trees: jax.tree.map(lambda a, b: (a == b).all(), *trees))(state, restored)
    multihost_utils.sync_global_devices("restored")
    if jax.process_index() == 0:
        remove_path(directory)
    return {"bytes": size, "seconds": seconds, "equal": all(bool(same) for same in jax.tree.leaves(equal))}


def make_noise(state):
    """Return a state of the same shapes with random numbers: the zeros of a first one would take no room on a disk."""

    def draw(number: int, leaf):
        return jax.random.normal(jax.random.key(number), leaf.shape, leaf.dtype)

    def fill(state):
        leaves, structure = jax.tree.flatten(state)
        is_float = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
        noise = [draw(n, leaf) if is_float[n] else leaf for n, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, noise)

    return jax.jit(fill, out_shardings=get_shardings(state))(state)


def main() -> None:
    directory, constraints, coordinator, count, index, _, spec, *flags = sys.argv[1:]
    overrides = [flag.removeprefix("--config.") for flag in flags]
    several = (coordinator, int(count), int(index)) if int(count) > 1 else ()
    with join_processes(*several):
        facts = check_host(Path(directory), Path(constraints), spec, overrides)
        multihost_utils.sync_global_devices("checked")
    print(to_json(facts))


if __name__ == "__main__":
    main()
