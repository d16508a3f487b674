"""`bert-jax preflight`: compile the training step of a config for a slice without having one, and show its costs.

Memory is what the TPU compiler reports. FLOPs are counted in the traced program, memory traffic and collectives in the
compiled one (pod/hlo.py). Times are bounds (pod/roofline.py), not measurements.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from bert_jax import tasks
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line
from bert_jax.pod import preflight_checks
from bert_jax.pod.roofline import BOUNDS, Roofline
from bert_jax.pod.topology import Slice, parse_slice
from bert_jax.training.run_config import RunConfig

GiB, HOUR = 2**30, 3600
# For a machine without a TPU: without these, libtpu looks for a TPU and for other hosts.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def preflight(spec: str, overrides: Sequence[str], topology: str, price: float | None = None) -> dict:
    """Return facts about the run; raise if it would fail."""
    where = parse_slice(topology)
    _, config = tasks.load_config(spec, overrides, "tpu")
    facts = compile_in_subprocess(spec, overrides, where)
    for phase in facts["phases"]:
        add_speeds(phase, facts["rows"], where)
        if not phase["fits"]:
            raise BertJaxError(memory_advice(facts, phase, config, where))
    facts |= total_cost(facts, where, price)
    facts["checks"] += preflight_checks.describe_machine(config, facts, where)
    return facts


def compile_in_subprocess(spec: str, overrides: Sequence[str], where: Slice) -> dict:
    """Return the result of pod/compile.py, run in its own process: libtpu does not mix with a running JAX program."""
    if find_spec("libtpu") is None:
        raise BertJaxError(
            f"the step cannot be compiled for {where}: the TPU compiler is not installed; pip install 'jax[tpu]'"
        )
    print_line(f"compiling the step for {where}, which takes a minute or more")
    request = {"config": spec, "overrides": list(overrides), "topology": str(where)}
    command = [sys.executable, "-m", "bert_jax.pod.compile", json.dumps(request)]
    ran = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True)
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["without a message"])[-1]
        raise BertJaxError(f"the step could not be compiled for {where} ({last[:300]})")
    *notes, last = ran.stdout.splitlines()
    result = json.loads(last)
    if "error" in result:
        raise BertJaxError(result["error"])
    result["checks"] = notes + result["checks"]
    return {"topology": str(where), "chips": where.chips, "hosts": where.hosts} | result


def add_speeds(phase: dict, rows: int, where: Slice) -> None:
    """Add to a compiled phase the figures that follow from its memory and its bounds."""
    phase["headroom"] = where.chip.memory - sum(phase["memory"].values())
    # The size of a step that does not compile for lack of memory is rounded, perhaps to one that would fit.
    phase["fits"] = "seconds" in phase and phase["headroom"] >= 0
    if "seconds" in phase:
        roofline = Roofline(**phase["seconds"])
        phase["binds"] = roofline.bottleneck
        phase["seconds"] |= {bound: getattr(roofline, bound) for bound in BOUNDS}
        speeds = {bound: 1 / phase["seconds"][bound] for bound in BOUNDS}  # steps per second
        peak_share = phase["model_flops"] / (where.device_count * where.chip.flops)
        tokens = rows * phase["length"]
        phase["mfu"] = {bound: peak_share * speed for bound, speed in speeds.items()}
        phase["tokens_per_second"] = {bound: tokens * speed for bound, speed in speeds.items()}
        phase["rows_per_second"] = rows / roofline.least


def total_cost(facts: dict, where: Slice, price: float | None) -> dict:
    """Return the hours of all steps, and their costs if there is a price; {} if the hours are unknown."""
    phases, steps = facts["phases"], facts["steps"]
    if not steps or any("seconds" not in phase for phase in phases):
        return {}
    hours = {
        bound: steps * sum(phase["share"] * phase["seconds"][bound] for phase in phases) / HOUR
        for bound in BOUNDS
    }
    cost = {} if price is None else {"cost": {b: time * where.chips * price for b, time in hours.items()}}
    return {"hours": hours} | cost


def memory_advice(facts: dict, phase: dict, config: RunConfig, where: Slice) -> str:
    memory, batch = phase["memory"], facts["batch_size"]
    needed, has = sum(memory.values()), where.chip.memory
    shortage = (
        f"{facts['rows']} x {phase['length']} needs {needed / GiB:.1f} GiB on each {where.chip.unit} of {where}, which "
        f"has {has / GiB:.2f}"
    )
    lasting = memory["parameters"] + memory["optimizer"]
    if lasting + memory["batch"] > 0.9 * has:
        too_large, mesh = f"{shortage}; parameters and optimizer alone are too large", phase["mesh"]
        if mesh["data"] == 1:
            return f"{too_large}: take a larger slice, or a smaller model"
        if memory["optimizer"] > 0.4 * has and not config.mesh.shard_optimizer:
            return f"{too_large}: set --config.mesh.shard_optimizer=true"
        free = "" if config.mesh.data == -1 else " --config.mesh.data=-1"
        return f"{too_large}: set --config.mesh.fsdp={where.device_count // mesh['tensor']}{free}"
    # Temporaries are mostly activations, which halve with the rows that are computed at once.
    parts, shares = config.mesh.gradient_accumulation_steps, phase["mesh"]["data"] * phase["mesh"]["fsdp"]
    while lasting + memory["temporaries"] * config.mesh.gradient_accumulation_steps / parts > 0.9 * has:
        parts *= 2
    if batch % (shares * parts) == 0:
        return f"{shortage}; set --config.mesh.gradient_accumulation_steps={parts}"
    if facts["remat"] == "none":
        return f"{shortage}; set --config.model.remat=full, or take a larger slice"
    rows = shares * config.mesh.gradient_accumulation_steps
    if batch > rows:
        return f"{shortage}; set --config.data.batch_size={rows}, or take a larger slice"
    return f"{shortage}; take a larger slice, or a smaller model"


def describe_preflight(facts: dict) -> str:
    where, first = parse_slice(facts["topology"]), facts["phases"][0]
    chip = where.chip
    mesh = " x ".join(f"{axis} {size}" for axis, size in first["mesh"].items())
    in_rows = f" in {facts['rows']} rows" if facts["rows"] != facts["batch_size"] else ""
    lines = [
        f"{facts['topology']}: {where.chips} chips{f', {where.device_count} devices' * (chip.devices > 1)}, "
        f"{where.hosts} hosts ({mesh}), "
        f"{first['parameters']:,} parameters, batch {facts['batch_size']}{in_rows}",
    ]
    for phase in facts["phases"]:
        lines += ["", *describe_phase(phase, where)]
    if hours := facts.get("hours"):
        lines += ["", f"{facts['steps']:,} steps, hours: {list_bounds(hours, ',.1f')}"]
    if cost := facts.get("cost"):
        lines.append(f"cost: {list_bounds(cost, ',.0f')}")
    lines += ["", *facts["checks"]]
    lines.append(
        f"Peaks of a {chip.unit}, {chip.device_kind}: {chip.flops / 1e12:.0f} TFLOP/s, "
        f"{chip.memory_speed / 1e9:.0f} GB/s, {where.all_reduce_bandwidth / 1e9:.0f} GB/s from the chip with the "
        "fewest links."
    )
    return "\n".join(lines)


def list_bounds(values: dict[str, float], form: str) -> str:
    return ", ".join(f"{bound} {values[bound]:{form}}" for bound in BOUNDS)


def describe_phase(phase: dict, where: Slice) -> list[str]:
    memory, seconds, unit = phase["memory"], phase["seconds"], where.chip.unit
    share = f", {phase['share']:.0%} of the steps" if phase["share"] < 1 else ""
    memory_shares = ", ".join(f"{name} {size / GiB:.2f}" for name, size in memory.items())
    lines = [
        f"length {phase['length']}{share}",
        f"  memory      {sum(memory.values()) / GiB:.2f} of {where.chip.memory / GiB:.2f} GiB a {unit} "
        f"({memory_shares}), {phase['headroom'] / GiB:.2f} free",
        f"  compute     {phase['flops'] / 1e12:,.1f} TFLOP a step, {phase['flops'] / phase['model_flops'] - 1:.1%} "
        f"more than the model's own (recomputation and other products): {seconds['compute'] * 1e3:.1f} ms",
        f"  traffic     {phase['traffic'] / 1e9:,.2f} GB a {unit} to and from memory: {seconds['memory'] * 1e3:.1f} ms",
        f"  links       {seconds['links'] * 1e3:.1f} ms",
        *(f"              {line}" for line in describe_collectives(phase["collectives"])),
        f"  kernels     {', '.join(phase['kernels']) or 'none'}",
    ]
    for bound in BOUNDS:
        lines.append(
            f"  {bound:<11} {seconds[bound] * 1e3:6.1f} ms a step, MFU {phase['mfu'][bound]:.1%}, "
            f"{phase['tokens_per_second'][bound] / 1e6:.2f} M tokens/s"
        )
    rows = phase["rows_per_second"] / where.chips
    return [*lines, f"  limited by {phase['binds']}; at most {rows:,.0f} rows/s a chip"]


def describe_collectives(collectives: list[dict]) -> list[str]:
    """Describe like collectives together; leave out those of less than 1 MB in all."""
    sizes: dict[tuple, list[float]] = {}
    for collective in collectives:
        signature = collective["opcode"], collective["axes"], collective["trips"]
        sizes.setdefault(signature, []).append(collective["bytes"])
    return [
        f"{len(bytes_)} {opcode} over {axes}, {sum(bytes_) / 1e6:,.1f} MB"
        + (f", {trips} times" if trips > 1 else "")
        for (opcode, axes, trips), bytes_ in sizes.items()
        if sum(bytes_) >= 1e6
    ]
