"""Compile the steps of a config for a slice without having one, in a process of its own, and print facts as JSON.

`python -m bert_jax.pod.compile JSON` takes an object of `config`, `overrides` and `topology`. The lines that the task
prints while it reads its data come before the result.
"""

import dataclasses
import json
import math
import re
import sys

import jax
from jax.sharding import Mesh

from bert_jax import tasks
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.models.cost import global_share
from bert_jax.pod import flops, hlo, preflight_checks
from bert_jax.pod.roofline import make_roofline
from bert_jax.pod.topology import Slice, parse_slice
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import make_mesh, mesh_warnings
from bert_jax.training.state import abstract_batch, abstract_constants, abstract_state
from bert_jax.training.step import make_step
from bert_jax.training.task import Outline, OutlinePhase

# The compiler's two messages: about all that the program holds, or about its temporaries alone.
TOO_MUCH = re.compile(r"(?:Used |(HLO temporaries) \()([\d.]+)([KMGT])(?: of [\d.]+[KMGT] hbm|\) exceeds)")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def outline_on_slice(config: RunConfig, where: Slice) -> tuple[Outline, Mesh]:
    """Return what the steps compute on the slice, and its mesh. The slice decides how many rows hold the examples."""
    mesh = make_mesh(config.mesh, where.devices())
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return tasks.outline_run(config), mesh


def compile_config(config: RunConfig, where: Slice) -> dict:
    outline, mesh = outline_on_slice(config, where)
    lines = preflight_checks.check_outline(config, outline, where) + mesh_warnings(config.mesh, mesh)
    return {
        "batch_size": outline.batch,
        "rows": outline.rows,
        "steps": outline.steps,
        "remat": outline.task.layout.config.remat,
        "checkpoints": dataclasses.asdict(outline.config.checkpoints),
        "checks": lines,
        "phases": [compile_phase(outline, phase, mesh, where) for phase in outline.phases],
    }


def trace_step(outline: Outline, phase: OutlinePhase, mesh: Mesh):
    """Return the abstract state and batch that the step takes, and the step traced for the mesh."""
    task, config = outline.task, outline.config
    state, batch = abstract_state(task, config, mesh), abstract_batch(phase.features, config, mesh)
    return (
        state,
        batch,
        make_step(task, config, mesh).trace(state, batch, abstract_constants(task, config, mesh)),
    )


def compile_phase(outline: Outline, phase: OutlinePhase, mesh: Mesh, where: Slice) -> dict:
    state, batch, step = trace_step(outline, phase, mesh)
    executed, kernels = flops.count_flops(step.jaxpr, global_share(outline.task.layout.config))
    result = {
        "length": phase.length,
        "share": phase.share,
        "mesh": dict(mesh.shape),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        "state": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)),
        "flops": executed,
        "model_flops": outline.task.flops(outline.rows, phase.length),
    }
    memory = {"parameters": state.params, "optimizer": state.optimizer, "batch": batch}
    result["memory"] = {name: bytes_per_device(tree) for name, tree in memory.items()}
    try:
        compiled = step.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        too_much = TOO_MUCH.search(str(error))
        if not too_much:
            raise
        used = float(too_much[2]) * UNITS[too_much[3]]
        result["memory"]["temporaries"] = used - (0 if too_much[1] else sum(result["memory"].values()))
        return result
    memory = compiled.memory_analysis()
    result["memory"]["temporaries"] = memory.temp_size_in_bytes
    result["memory"]["program"] = memory.generated_code_size_in_bytes
    text = hlo.parse_program(compiled.as_text())
    flops_per_chip = {name: total / mesh.size for name, total in kernels.items()}
    bounds = make_roofline(text, executed / mesh.size, flops_per_chip, where)
    return result | {
        "kernels": sorted(text.kernels),
        "traffic": text.traffic,
        "products": sum(operation.flops * operation.trips for operation in text.operations),
        "collectives": [
            dataclasses.asdict(collective) | {"axes": name_axes(collective.members, mesh)}
            for collective in text.collectives
        ],
        "seconds": dataclasses.asdict(bounds),
    }


def bytes_per_device(tree) -> int:
    """Return the bytes of a tree of arrays on one device."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def name_axes(members: int, mesh) -> str:
    """Name the axes of the mesh that groups of `members` devices span."""
    if members in (0, mesh.size):
        return " x ".join(axis for axis, size in mesh.shape.items() if size > 1) or "none"
    return " or ".join(axis for axis, size in mesh.shape.items() if size == members) or f"{members} devices"


def main() -> None:
    request = json.loads(sys.argv[1])
    try:
        _, config = tasks.load_config(request["config"], request["overrides"], "tpu")
        result = compile_config(config, parse_slice(request["topology"]))
    except BertJaxError as error:
        result = {"error": str(error)}
    print(to_json(result))


if __name__ == "__main__":
    main()
