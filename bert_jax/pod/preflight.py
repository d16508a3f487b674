"""`bert-jax preflight`: the step that a config trains with, compiled for a slice that is not here, and what it costs.

Memory is the TPU compiler's own account. FLOPs are counted in the traced program, memory traffic and collectives in
the compiled one (pod/program.py); times are bounds (pod/roofline.py), not measurements.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bert_jax import config as configs
from bert_jax.data.corpus.config import DataConfig
from bert_jax.errors import BertJaxError
from bert_jax.pod import checks
from bert_jax.pod.roofline import Roofline
from bert_jax.pod.topology import Slice, slice_of
from bert_jax.tasks.pretrain import Config

GiB, HOUR = 2**30, 3600
# Of a machine without a TPU; libtpu looks for one, and for others of its kind, unless told.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def preflight(
    spec: str,
    overrides: Sequence[str],
    topology: str,
    price: float | None = None,
    workdir: str | None = None,
    as_json: bool = False,
) -> str:
    """The report; raises what would go wrong."""
    where = slice_of(topology)
    config = configs.load(spec, overrides, Config)
    facts, vocabulary = checks.of(config, where)
    phases = [
        {"share": share, **compiled(spec, overrides, where, length, vocabulary)}
        for length, share in phases_of(config.data)
    ]
    found: dict[str, Any] = {
        "topology": str(where),
        "chips": where.chips,
        "hosts": where.hosts,
        "batch": config.data.batch,
    }
    found |= {"phases": [judged(phase, config, where) for phase in phases]}
    found |= total(found["phases"], config, where, price)
    if too_large := next((phase for phase in found["phases"] if phase["headroom"] < 0), None):
        raise BertJaxError(advice(too_large, config, where))
    found["checks"] = facts + checks.of_input(config, found["phases"], where, workdir)
    return json.dumps(found) if as_json else text(found, where)


def phases_of(data: DataConfig) -> list[tuple[int, float]]:
    """Each length with its share of the steps."""
    return [
        (length, share / sum(data.shares)) for length, share in zip(data.lengths, data.shares, strict=True)
    ]


def compiled(spec: str, overrides: Sequence[str], where: Slice, length: int, vocabulary: int | None) -> dict:
    """What pod/compile.py finds, in a process of its own: libtpu and a program that runs do not mix."""
    asked = {
        "config": spec,
        "overrides": list(overrides),
        "topology": str(where),
        "length": length,
        "vocabulary": vocabulary,
    }
    command = [sys.executable, "-m", "bert_jax.pod.compile", json.dumps(asked)]
    ran = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True)
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["without a word"])[-1]
        if "TPU support not installed" in ran.stderr or (
            "libtpu" in ran.stderr and "install" in ran.stderr.lower()
        ):
            last = "the TPU compiler is not installed; pip install 'bert-jax[preflight]'"
        raise BertJaxError(f"the step could not be compiled for {where} ({last[:300]})")
    found = json.loads(ran.stdout.splitlines()[-1])
    if "error" in found:
        raise BertJaxError(found["error"])
    return {"length": length} | found


def judged(phase: dict, config: Config, where: Slice) -> dict:
    """A compiled phase with what follows from it for a person."""
    phase["headroom"] = where.chip.memory - sum(phase["memory"].values())
    if "seconds" in phase:
        bounds = Roofline(**phase["seconds"])
        tokens = config.data.batch * phase["length"]
        peak = where.chips * where.chip.flops
        phase["binds"] = bounds.binds
        for name in ("serial", "by_operation", "overlapped"):
            seconds = getattr(bounds, name)
            phase["seconds"][name] = seconds
            phase.setdefault("mfu", {})[name] = phase["model_flops"] / seconds / peak
            phase.setdefault("tokens_per_second", {})[name] = tokens / seconds
        phase["rows_per_second"] = config.data.batch / bounds.overlapped
    return phase


def total(phases: list[dict], config: Config, where: Slice, price: float | None) -> dict:
    """Hours, and what they cost, of all the steps."""
    if any("seconds" not in phase for phase in phases):
        return {}
    steps = config.steps - max(config.first_step, 0)
    hours = {
        bound: steps * sum(phase["share"] * phase["seconds"][bound] for phase in phases) / HOUR
        for bound in ("serial", "by_operation", "overlapped")
    }
    found = {"steps": steps, "hours": hours}
    if price is not None:
        found["cost"] = {bound: time * where.chips * price for bound, time in hours.items()}
    return found


def advice(phase: dict, config: Config, where: Slice) -> str:
    memory = phase["memory"]
    needed, has = sum(memory.values()), where.chip.memory
    said = (
        f"{config.data.batch} x {phase['length']} needs {needed / GiB:.1f} GiB on each chip of {where}, which has "
        f"{has / GiB:.2f}"
    )
    lasting = memory["parameters"] + memory["optimizer"]
    if lasting + memory["batch"] > 0.9 * has:
        replicated = phase["mesh"]["data"] > 1
        if replicated and memory["optimizer"] > 0.4 * has and not config.mesh.shard_optimizer:
            return f"{said}; parameters and optimizer alone are too large: set --config.mesh.shard_optimizer=true"
        return f"{said}; parameters and optimizer alone are too large: set --config.mesh.fsdp={where.chips}"
    # Temporaries are mostly activations, which halve with the rows that are computed at once.
    parts, shares = config.mesh.accumulate, phase["mesh"]["data"] * phase["mesh"]["fsdp"]
    while lasting + memory["temporaries"] * config.mesh.accumulate / parts > 0.9 * has:
        parts *= 2
    if config.data.batch % (shares * parts) == 0:
        return f"{said}; set --config.mesh.accumulate={parts}"
    if config.model.remat == "none":
        return f"{said}; set --config.model.remat=full, or take a larger slice"
    return f"{said}; set --config.data.batch={shares}, or take a larger slice"


def text(found: dict, where: Slice) -> str:
    chip = where.chip
    first = found["phases"][0]
    mesh = " x ".join(f"{axis} {size}" for axis, size in first["mesh"].items())
    lines = [
        f"{found['topology']}: {where.chips} chips, {where.hosts} hosts ({mesh}), "
        f"{first['parameters']:,} parameters, batch {found['batch']}",
    ]
    for phase in found["phases"]:
        lines += ["", *phase_lines(phase, where)]
    hours = found["hours"]
    lines += [
        "",
        f"{found['steps']:,} steps: {hours['serial']:,.1f} h serial, {hours['by_operation']:,.1f} h operation by "
        f"operation, {hours['overlapped']:,.1f} h at the very least",
    ]
    if "cost" in found:
        cost = found["cost"]
        lines.append(
            f"cost: {cost['serial']:,.0f} serial, {cost['by_operation']:,.0f} operation by operation"
        )
    lines += ["", *found["checks"]]
    lines.append(
        f"Peaks of {chip.kind}: {chip.flops / 1e12:.0f} TFLOP/s, {chip.memory_speed / 1e9:.0f} GB/s, "
        f"{where.reduce_speed / 1e9:.0f} GB/s out of the worst placed chip."
    )
    return "\n".join(lines)


def phase_lines(phase: dict, where: Slice) -> list[str]:
    memory, seconds, chips = phase["memory"], phase["seconds"], where.chips
    share = f", {phase['share']:.0%} of the steps" if phase["share"] < 1 else ""
    kinds = ", ".join(f"{kind} {size / GiB:.2f}" for kind, size in memory.items())
    lines = [
        f"length {phase['length']}{share}",
        f"  memory      {sum(memory.values()) / GiB:.2f} of {where.chip.memory / GiB:.2f} GiB a chip ({kinds}), "
        f"{phase['headroom'] / GiB:.2f} free",
        f"  compute     {phase['flops'] / 1e12:,.1f} TFLOP a step, {phase['flops'] / phase['model_flops'] - 1:.1%} of "
        f"it made again or beside the model's: {seconds['compute'] * 1e3:.1f} ms",
        f"  traffic     {phase['traffic'] / 1e9:,.2f} GB a chip to and from memory: {seconds['memory'] * 1e3:.1f} ms",
        f"  links       {seconds['links'] * 1e3:.1f} ms",
    ]
    lines += [f"              {line}" for line in collective_lines(phase["collectives"])]
    lines.append(f"  kernels     {', '.join(phase['kernels']) or 'none'}")
    for bound, said in (
        ("serial", "one after the other"),
        ("by_operation", "operation by operation"),
        ("overlapped", "all at once"),
    ):
        lines.append(
            f"  {said:<22}  {seconds[bound] * 1e3:6.1f} ms a step, MFU {phase['mfu'][bound]:.1%}, "
            f"{phase['tokens_per_second'][bound] / 1e6:.2f} M tokens/s"
        )
    lines.append(f"  {phase['binds']} binds; {phase['rows_per_second'] / chips:,.0f} rows/s a chip at most")
    return lines


def collective_lines(collectives: list[dict]) -> list[str]:
    """Kinds of collectives with those of less than 1 MB left out."""
    sums: dict[tuple, list[float]] = {}
    for each in collectives:
        counted = sums.setdefault((each["kind"], each["axes"], each["trips"]), [0, 0])
        counted[0] += 1
        counted[1] += each["bytes"]
    return [
        f"{count} {kind} over {axes}, {bytes_ / 1e6:,.1f} MB" + (f", {trips} times" if trips > 1 else "")
        for (kind, axes, trips), (count, bytes_) in sums.items()
        if bytes_ >= 1e6
    ]
