"""Run in a process of its own: the steps of a config compiled for a slice without having one, as JSON.

`python -m bert_jax.pod.compile JSON`, an object of config, overrides, topology and whether the longest rows alone are
asked for. What the task says of its data while it reads them comes before the result, a line each.
"""

import dataclasses
import json
import math
import re
import sys

import jax
from jax.sharding import Mesh

from bert_jax import tasks
from bert_jax.errors import BertJaxError
from bert_jax.files import to_json
from bert_jax.pod import checks, flops, program
from bert_jax.pod.roofline import roofline
from bert_jax.pod.topology import Slice, slice_of
from bert_jax.tasks.outline import Outline, Phase
from bert_jax.train.config import RunConfig
from bert_jax.train.sharding import make_mesh
from bert_jax.train.state import abstract_batch, abstract_constants, abstract_state
from bert_jax.train.step import make_step

# The compiler's two messages: of all that the program holds, or of its temporaries alone.
TOO_MUCH = re.compile(r"(?:Used |(HLO temporaries) \()([\d.]+)([KMGT])(?: of [\d.]+[KMGT] hbm|\) exceeds)")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def outline_for(config: RunConfig, where: Slice) -> tuple[Outline, Mesh]:
    """What the steps compute on the slice, which decides how many rows examples stand in; and its mesh."""
    mesh = make_mesh(config.mesh, where.devices())
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return tasks.outline_of(config), mesh


def compiled_for(config: RunConfig, where: Slice, longest: bool) -> dict:
    outline, mesh = outline_for(config, where)
    lines = checks.check_outline(config, outline, where)
    phases = outline.phases
    if longest:
        phases = (max(phases, key=lambda phase: phase.length),)
    return {
        "batch": outline.batch,
        "rows": outline.rows,
        "steps": outline.steps,
        "remat": outline.task.layout.config.remat,
        "checkpoints": dataclasses.asdict(outline.config.checkpoints),
        "checks": lines,
        "phases": [compiled_phase(outline, phase, mesh, where) for phase in phases],
    }


def traced(outline: Outline, phase: Phase, mesh: Mesh):
    """What the step takes, and the step traced for the mesh."""
    task, config = outline.task, outline.config
    state, batch = abstract_state(task, config, mesh), abstract_batch(phase.features, config, mesh)
    return state, batch, make_step(task, config, mesh).trace(state, batch, abstract_constants(task, mesh))


def compiled_phase(outline: Outline, phase: Phase, mesh: Mesh, where: Slice) -> dict:
    state, batch, step = traced(outline, phase, mesh)
    executed, kernels = flops.count(step.jaxpr)
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
    result["memory"] = {name: held(tree) for name, tree in memory.items()}
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
    text = program.read(compiled.as_text())
    flops_per_chip = {name: total / mesh.size for name, total in kernels.items()}
    bounds = roofline(text, executed / mesh.size, flops_per_chip, where)
    return result | {
        "kernels": sorted(text.kernels),
        "traffic": text.traffic,
        "products": sum(operation.flops * operation.trips for operation in text.operations),
        "collectives": [
            dataclasses.asdict(collective) | {"axes": axes(collective.members, mesh)}
            for collective in text.collectives
        ],
        "seconds": dataclasses.asdict(bounds),
    }


def held(tree) -> int:
    """Bytes of it on one device."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def axes(members: int, mesh) -> str:
    """The axes of the mesh that so many devices span."""
    if members in (0, mesh.size):
        return " x ".join(axis for axis, size in mesh.shape.items() if size > 1) or "none"
    return " or ".join(axis for axis, size in mesh.shape.items() if size == members) or f"{members} devices"


def main() -> None:
    asked = json.loads(sys.argv[1])
    try:
        _, config = tasks.load(asked["config"], asked["overrides"])
        result = compiled_for(config, slice_of(asked["topology"]), asked["longest"])
    except BertJaxError as error:
        result = {"error": str(error)}
    print(to_json(result))


if __name__ == "__main__":
    main()
