"""The mesh of devices, and how parameters and the optimizer's moments are split over its axes."""

import math
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.models.mesh import AXES, DATA, FSDP, ROWS, TENSOR
from bert_jax.training.parameter_rules import (
    PARAMETER_RULES,
    ParameterRule,
    Rules,
    map_with_rules,
    params_by_name,
)
from bert_jax.training.run_config import MeshConfig

ABORTING = (0, 11)  # jax 0.12 ends the process, 0.10 does not; the versions between were not tried


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    devices = list(jax.devices() if devices is None else devices)
    sizes = {axis: getattr(config, axis) for axis in AXES}
    free = [axis for axis, size in sizes.items() if size == -1]
    fixed = math.prod(size for size in sizes.values() if size != -1)
    text = ", ".join(f"mesh.{axis}={size}" for axis, size in sizes.items())
    if len(free) > 1 or fixed < 1 or len(devices) % fixed:
        raise BertJaxError(
            f"the sizes of the mesh ({text}) do not fit {pluralize(len(devices), 'device')}: their product must divide "
            f"{len(devices)}, and at most one may be -1"
        )
    if free:
        sizes[free[0]] = len(devices) // fixed
    if math.prod(sizes.values()) != len(devices):
        raise BertJaxError(
            f"{text} takes {math.prod(sizes.values())} devices, but there are {len(devices)}; set one to -1"
        )
    axis_types = (AxisType.Auto,) * 3
    if config.gradient_ring and sizes[DATA] == len(devices) and (ring := order_in_ring(devices)):
        return Mesh(np.array(ring).reshape(tuple(sizes.values())), AXES, axis_types=axis_types)
    return jax.make_mesh(tuple(sizes.values()), AXES, devices=devices, axis_types=axis_types)


def order_in_ring(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """Return the devices of a flat slice in an order in which each is linked to the next, and the last to the first;
    [] if they are not a flat slice."""
    by_coordinates = {tuple(device.coords): device for device in devices if device.platform == "tpu"}
    width, height, depth = (
        (max(side) + 1 for side in zip(*by_coordinates, strict=True)) if by_coordinates else (0, 0, 0)
    )
    if (
        len(by_coordinates) != len(devices)
        or width * height != len(devices)
        or depth != 1
        or width < 2
        or height % 2
    ):
        return []
    # Along the first row, through the other rows to and fro, and back through the first column.
    path = [(x, 0) for x in range(width)]
    for y in range(1, height):
        path += [(x, y) for x in (range(width - 1, 0, -1) if y % 2 else range(1, width))]
    path += [(0, y) for y in range(height - 1, 0, -1)]
    return [by_coordinates[x, y, 0] for x, y in path]


def is_split_over_data(config: MeshConfig, mesh: Mesh) -> bool:
    """Whether each data shard holds a part of the parameters, not all of them."""
    return config.shard_optimizer and mesh.shape[DATA] > 1 and can_map_over_data(mesh)


def can_map_over_data(mesh: Mesh, version: tuple[int, ...] = jax.__version_info__) -> bool:
    """Whether each data shard can run its own program. XLA's partitioner aborts on one that is split over both fsdp and
    tensor."""
    return version < ABORTING or mesh.shape[FSDP] == 1 or mesh.shape[TENSOR] == 1


def mesh_warnings(config: MeshConfig, mesh: Mesh) -> list[str]:
    """Return lines about settings of the mesh that have no effect, or not the intended one."""
    lines = []
    is_split = is_split_over_data(config, mesh)
    if config.shard_optimizer and mesh.shape[DATA] > 1 and not is_split:
        lines.append(
            "mesh.shard_optimizer has no effect: with this version of JAX, parameters are split over mesh.data beside "
            "mesh.fsdp or mesh.tensor, not beside both"
        )
    if config.gradient_ring and not is_split:
        lines.append(
            "mesh.gradient_ring has no effect: each device holds all parameters (mesh.shard_optimizer)"
        )
    elif config.gradient_ring and mesh.devices.flat[0].platform == "tpu":
        devices = list(mesh.devices.flat)
        if order_in_ring(devices) != devices:
            lines.append(
                "mesh.gradient_ring slows the run down: it is for data shards alone, on slices with two sides"
            )
    return lines


def describe_devices(mesh: Mesh) -> str:
    """Describe the devices: "the CPU" if that is the only one, otherwise their number and kind."""
    device_name = mesh.devices.flat[0].device_kind
    return "the CPU" if mesh.size == 1 and device_name == "cpu" else f"{mesh.size} {device_name}"


def check_batch(batch: int, mesh: Mesh, accumulate: int) -> None:
    """Refuse a batch whose rows cannot be divided evenly."""
    shards = mesh.shape[DATA] * mesh.shape[FSDP]
    parts = shards * accumulate
    if batch % parts:
        below, above = batch // parts * parts, -(-batch // parts) * parts
        sizes = " or ".join(str(size) for size in (below, above) if size)
        raise BertJaxError(
            f"the {batch} rows of a step cannot be shared equally by {pluralize(shards, 'group')} of devices "
            f"(mesh.data x mesh.fsdp) in {pluralize(accumulate, 'part')} (mesh.gradient_accumulation_steps); "
            f"set --config.data.batch_size={sizes}"
        )


def parameter_shardings(params: dict, mesh: Mesh, rules: Rules = PARAMETER_RULES) -> dict:
    """Return the sharding of each parameter (array or shape); refuse an axis that does not divide evenly."""

    def sharding(rule: ParameterRule, name: str, leaf) -> NamedSharding:
        for number, (size, axis) in enumerate(zip(leaf.shape, rule.spec, strict=False)):
            if axis and size % mesh.shape[axis]:
                hint = f"set --config.mesh.{axis} to a divisor of {size}"
                # The vocabulary is the only first axis that is split over tensor.
                if axis == TENSOR and number == 0:
                    hint += f", or --config.model.vocab_multiple={math.lcm(128, mesh.shape[axis])}"
                raise BertJaxError(
                    f"{name} {list(leaf.shape)}: an axis of {size} cannot be split into {mesh.shape[axis]} equal parts "
                    f"(mesh.{axis}={mesh.shape[axis]}); {hint}"
                )
        return NamedSharding(mesh, rule.spec)

    return map_with_rules(params, rules, sharding)


def optimizer_shardings(optimizer: optax.GradientTransformation, params: dict, shardings: dict, mesh: Mesh):
    """Return shardings of the optimizer's state: moments like their parameters, counters on every device."""
    return optax.tree_utils.tree_map_params(
        optimizer,
        lambda _, sharding: sharding,
        jax.eval_shape(optimizer.init, params),
        shardings,
        transform_non_params=lambda _: NamedSharding(mesh, P()),
    )


def split_over_data(params: dict, shardings: dict, mesh: Mesh, rules: Rules = PARAMETER_RULES) -> dict:
    """Return shardings in which parameters with weight decay are split over the data axis, too.

    The other parameters are small, and would be many small arrays to gather.
    """
    flat = params_by_name(shardings)
    return map_with_rules(
        params,
        rules,
        lambda rule, name, leaf: split_once_more(leaf, flat[name], mesh, rule) if rule.decays else flat[name],
    )


def split_once_more(leaf, sharding: NamedSharding, mesh: Mesh, rule: ParameterRule) -> NamedSharding:
    """Split over data the first unsplit axis that divides evenly, but not the layers' axis: layers are read singly."""
    axes = [*sharding.spec, *[None] * (leaf.ndim - len(sharding.spec))]
    for i in range(int(rule.depth == "layers"), leaf.ndim):
        if (axes[i] is None or mesh.shape[axes[i]] == 1) and leaf.shape[i] % mesh.shape[DATA] == 0:
            axes[i] = DATA
            break
    return NamedSharding(mesh, P(*axes))


def data_axis(sharding: NamedSharding, ndim: int) -> int:
    """The axis that is split over data, counted from the last; 0 if none is."""
    return sharding.spec.index(DATA) - ndim if DATA in sharding.spec else 0


def gather_over_data(params: dict, parts: dict, whole: dict, dtypes: dict) -> dict:
    """Gather whole parameters from their parts, sent in `dtypes`; parameters that are not split stay as they are."""

    def gather(param, part: NamedSharding, whole: NamedSharding, dtype):
        axis = data_axis(part, param.ndim)
        if not axis:
            return param
        together = partial(jax.lax.all_gather, axis_name=DATA, axis=param.ndim + axis, tiled=True)
        run = jax.shard_map(
            together, mesh=whole.mesh, in_specs=part.spec, out_specs=whole.spec, check_vma=False
        )
        return run(param.astype(dtype))

    return jax.tree.map(gather, params, parts, whole, dtypes)


def local_data_shard(mesh: Mesh, batch: int) -> tuple[int, int]:
    """Return (index, count): this process makes the index-th of `count` equal parts of the batch."""
    # Any: the declared type allows None, which does not occur.
    addressable: Any = NamedSharding(mesh, ROWS).addressable_devices_indices_map((batch,)).values()
    parts = sorted({rows.indices(batch)[:2] for (rows,) in addressable})
    first, size = parts[0][0], sum(stop - start for start, stop in parts)
    if parts[-1][1] - first != size or batch % size or first % size:
        raise BertJaxError(
            f"with this mesh, process {jax.process_index()} would need rows from several places of the batch, which is "
            "not supported; set mesh.data to a multiple of the number of processes"
        )
    return first // size, batch // size


def place_batches(batches: Iterator[dict], mesh: Mesh, rows: int) -> Generator[dict]:
    """Turn each host's rows into arrays of the whole batch on the mesh."""
    sharding = NamedSharding(mesh, ROWS)
    for batch in batches:
        yield {
            name: jax.make_array_from_process_local_data(sharding, value, (rows, *value.shape[1:]))
            for name, value in batch.items()
        }
