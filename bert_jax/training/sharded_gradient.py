"""The gradient if each data shard holds only parts of the parameters, or if gradients are sent in fewer bits.

Each data shard runs its own program, which sends gradients explicitly. With one microbatch, it sends gradients as the
backward pass makes them (models/data_sharded.py); with several microbatches, it sends their sums.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from bert_jax.core.errors import BertJaxError
from bert_jax.models import data_sharded
from bert_jax.models.data_sharded import DataSharded, Sending
from bert_jax.models.mesh import DATA
from bert_jax.training.parameter_rules import LAYERS
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import can_map_over_data, data_axis
from bert_jax.training.task import Task


def sum_in_turn(function: Callable, microbatches):
    """Return the sum of the function's results for the microbatches, which are computed one after the other."""
    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], microbatches))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums, _ = jax.lax.scan(
        lambda sums, part: (jax.tree.map(jnp.add, sums, function(part)), None), zeros, microbatches
    )
    return sums


def make_sharded_gradient(task: Task, config: RunConfig, mesh: Mesh, shardings) -> Callable:
    """Return a function that sums gradients and metrics over all rows:
    (objective, whole params, rows [microbatches, shards, rows, ...]) -> (gradients, metrics).

    `objective(params, some of the rows)` returns a number and metrics; gradients are sharded by `shardings`.
    """
    if not can_map_over_data(mesh):
        raise BertJaxError(
            "with this version of JAX, mesh.gradient_reduce_dtype works beside mesh.fsdp or mesh.tensor, not beside "
            "both; set --config.mesh.gradient_reduce_dtype=float32"
        )
    specs = jax.tree.map(
        lambda sharding: P(*(axis if axis == DATA else None for axis in sharding.spec)), shardings
    )
    sending = Sending(config.mesh.gradient_reduce_dtype, config.mesh.gradient_ring)
    count = config.mesh.gradient_accumulation_steps
    # Parameters that several layers share are sent once, not by each layer.
    by_layer = not any(layout.config.layer_groups for layout in task.layouts.values())

    def data_axes(params):
        return jax.tree.map(lambda leaf, sharding: data_axis(sharding, leaf.ndim), params, shardings)

    def gradient_of_microbatch(objective, params, rows):
        axes = data_axes(params)

        def objective_of_parts(parts):
            placed = jax.tree.map(lambda *leaf: DataSharded(*leaf, sending), params, parts, axes)
            flat = flatten_dict(placed, sep="/")
            read = {
                n: leaf if by_layer and LAYERS in n else data_sharded.to_arrays(leaf)
                for n, leaf in flat.items()
            }
            return objective(unflatten_dict(read, sep="/"), rows)

        (_, measured), gradients = jax.value_and_grad(objective_of_parts, has_aux=True)(
            jax.tree.map(zeros_of_part, params, axes)
        )
        return gradients, measured

    def zeros_of_part(leaf, axis: int):
        """Return zeros in place of a part: the gradient needs only its shape."""
        shape = list(leaf.shape)
        if axis:
            shape[axis] //= mesh.shape[DATA]
        return jnp.zeros(shape, jnp.float32)

    def accumulate_microbatches(objective, params, rows):
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)

        def gradients_and_metrics(part):
            (_, measured), gradients = jax.value_and_grad(objective, has_aux=True)(params, part)
            return gradients, measured

        gradients, measured = sum_in_turn(gradients_and_metrics, rows)
        reduced = jax.tree.map(
            lambda leaf, axis: data_sharded.reduce_over_data(leaf, axis, sending),
            gradients,
            data_axes(params),
        )
        return reduced, measured

    def gradient(objective: Callable, params, rows):
        def run_shard(params, rows):
            rows = jax.tree.map(lambda x: x[:, 0], rows)
            if count == 1:
                gradients, measured = gradient_of_microbatch(
                    objective, params, jax.tree.map(lambda x: x[0], rows)
                )
            else:
                gradients, measured = accumulate_microbatches(objective, params, rows)
            return gradients, jax.lax.psum(measured, DATA)

        run = jax.shard_map(
            run_shard,
            mesh=mesh,
            in_specs=(P(), P(None, DATA)),
            out_specs=(specs, P()),
            axis_names={DATA},
            check_vma=False,
        )
        return run(params, rows)

    return gradient
