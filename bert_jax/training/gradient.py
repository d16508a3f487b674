"""The gradient of a batch's loss, on any mesh and in any number of microbatches.

The compiler splits the work over the mesh. Left to itself it would reduce the gradients of every microbatch over all
devices, so each shard of the `data` axis gets its own gradients (a leading axis, split over `data`), which are summed
over the microbatches where they are, and reduced once a step.

A loss of the whole batch needs the outputs of all rows before the gradient of any row. So the outputs of all rows are
computed first, without gradients. Then the loss gives its gradient with respect to each output. Then every microbatch
is run again: its loss is the inner product of its outputs with these gradients, so the parameters get the same
gradient. Dropout draws the same numbers both times.

If each data shard holds only parts of the parameters, or if gradients are sent in fewer bits, each data shard runs its
own program, which sends gradients explicitly. With one microbatch, it sends gradients as the backward pass makes them
(models/data_sharded.py); with several microbatches, it sends their sums.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.core.errors import BertJaxError
from bert_jax.core.typed_json import type_name
from bert_jax.losses.loss import Loss
from bert_jax.models import data_sharded
from bert_jax.models.data_sharded import DataSharded, Sending
from bert_jax.models.mesh import DATA, FSDP, ROWS
from bert_jax.training.objective import Objective
from bert_jax.training.parameter_rules import LAYERS
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import can_map_over_data, data_axis, is_split_over_data
from bert_jax.training.state import compute_outputs, gather_whole_params


def make_gradient(objective: Objective, config: RunConfig, mesh: Mesh, shardings) -> Callable:
    """Return a function (params, batch, key, constants) -> (gradients of the batch's loss, its metrics).

    Gradients are sharded like the parameters, by `shardings`.
    """
    count = config.mesh.gradient_accumulation_steps
    sharded_gradient = None
    if is_split_over_data(config.mesh, mesh) or config.mesh.gradient_reduce_dtype != "float32":
        sharded_gradient = make_sharded_gradient(objective, config, mesh, shardings)

    def accumulate_gradients(compute_loss: Callable, params, rows):
        """Sum the gradients and metrics of `compute_loss(params, some of the rows)` over all rows."""
        parts = split_microbatches(rows, count, mesh)
        if sharded_gradient:
            return sharded_gradient(compute_loss, params, parts)
        per_shard = jax.tree.map(lambda sharding: NamedSharding(mesh, P(DATA, *sharding.spec)), shardings)

        def shard_gradients(part):
            (_, measured), gradients = map_over_shards(jax.value_and_grad(compute_loss, has_aux=True), mesh)(
                params, part
            )
            return jax.lax.with_sharding_constraint(gradients, per_shard), measured

        return jax.tree.map(lambda x: x.sum(0), sum_in_turn(shard_gradients, parts))

    def gradient(params, batch, key, constants):
        batch, params = add_row_indices(batch), gather_whole_params(objective, params, shardings, mesh)
        if objective.whole_batch:
            params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
            return whole_batch_gradient(params, batch, key, constants)
        weights = loss_weights(objective, config, params, batch, constants, key, mesh)

        def compute_loss(params, rows):
            outputs = compute_outputs(objective, config, params, rows, constants, key)
            losses = compute_losses(objective, outputs, rows)
            total = sum(Loss(loss.total, weights[name]).mean for name, loss in losses.items())
            return total, collect_metrics(objective, losses, outputs, rows)

        return accumulate_gradients(compute_loss, params, batch)

    def whole_batch_gradient(params, batch, key, constants):
        def outputs(params, rows):
            computed = compute_outputs(objective, config, params, rows, constants, key)
            return check_rows(objective, "outputs", computed, rows)

        def loss(all_outputs):
            losses = compute_losses(objective, all_outputs, batch)
            return sum(loss.mean for loss in losses.values()), collect_metrics(
                objective, losses, all_outputs, batch
            )

        def direct(params):
            return loss(compute_in_microbatches(outputs, params, batch, 1, mesh))

        def compute_loss(params, part):
            rows, slopes = part
            return inner_product(outputs(params, rows), slopes), {}

        if count == 1:  # nothing needs to be computed twice
            (_, measured), gradients = jax.value_and_grad(direct, has_aux=True)(params)
            return jax.lax.with_sharding_constraint(gradients, shardings), measured
        all_outputs = compute_in_microbatches(outputs, params, batch, count, mesh)
        (_, measured), slopes = jax.value_and_grad(loss, has_aux=True)(all_outputs)
        return accumulate_gradients(compute_loss, params, (batch, slopes))[0], measured

    return gradient


def sum_in_turn(function: Callable, microbatches):
    """Return the sum of the function's results for the microbatches, which are computed one after the other."""
    if len(jax.tree.leaves(microbatches)[0]) == 1:
        return function(jax.tree.map(lambda x: x[0], microbatches))
    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[0], microbatches))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums, _ = jax.lax.scan(
        lambda sums, part: (jax.tree.map(jnp.add, sums, function(part)), None), zeros, microbatches
    )
    return sums


def make_sharded_gradient(objective: Objective, config: RunConfig, mesh: Mesh, shardings) -> Callable:
    """Return a function that sums gradients and metrics over all rows:
    (compute_loss, whole params, rows [microbatches, shards, rows, ...]) -> (gradients, metrics).

    `compute_loss(params, some of the rows)` returns a number and metrics; gradients are sharded by `shardings`.
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
    by_layer = not any(layout.config.layer_groups for layout in objective.layouts.values())

    def data_axes(params):
        return jax.tree.map(lambda leaf, sharding: data_axis(sharding, leaf.ndim), params, shardings)

    def gradient_of_microbatch(compute_loss, params, rows):
        axes = data_axes(params)

        def objective_of_parts(parts):
            placed = jax.tree.map(lambda *leaf: DataSharded(*leaf, sending), params, parts, axes)
            flat = flatten_dict(placed, sep="/")
            read = {
                n: leaf if by_layer and LAYERS in n else data_sharded.to_arrays(leaf)
                for n, leaf in flat.items()
            }
            return compute_loss(unflatten_dict(read, sep="/"), rows)

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

    def accumulate_microbatches(compute_loss, params, rows):
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)

        def gradients_and_metrics(part):
            (_, measured), gradients = jax.value_and_grad(compute_loss, has_aux=True)(params, part)
            return gradients, measured

        gradients, measured = sum_in_turn(gradients_and_metrics, rows)
        reduced = jax.tree.map(
            lambda leaf, axis: data_sharded.reduce_over_data(leaf, axis, sending),
            gradients,
            data_axes(params),
        )
        return reduced, measured

    def gradient(compute_loss: Callable, params, rows):
        def run_shard(params, rows):
            rows = jax.tree.map(lambda x: x[:, 0], rows)
            if count == 1:
                gradients, measured = gradient_of_microbatch(
                    compute_loss, params, jax.tree.map(lambda x: x[0], rows)
                )
            else:
                gradients, measured = accumulate_microbatches(compute_loss, params, rows)
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


def compute_in_microbatches(function: Callable, params, batch: dict, count: int, mesh: Mesh):
    """Compute `function(params, rows)` for all rows of the batch, [B, ...], in `count` microbatches."""
    parts = split_microbatches(batch, count, mesh)
    results = jax.lax.map(lambda part: map_over_shards(function, mesh)(params, part), parts)

    def join(x):
        x = jnp.moveaxis(x, 0, 2)
        return jax.lax.with_sharding_constraint(x.reshape(-1, *x.shape[3:]), NamedSharding(mesh, ROWS))

    return jax.tree.map(join, results)


def map_over_shards(function: Callable, mesh: Mesh) -> Callable:
    """Make `function(params, rows)` take rows [shards, B / shards, ...]; its results get a leading axis of shards."""

    def run_shards(params, rows):
        # The model finds the mesh that it runs on in the context.
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            if mesh.shape[DATA] == 1:
                results = function(params, jax.tree.map(lambda x: x[0], rows))
                return jax.tree.map(lambda x: x[None], results)
            return jax.vmap(function, (None, 0), spmd_axis_name=DATA)(params, rows)

    return run_shards


STEPS = "finished_steps"  # of the run, for each row; a validation batch has none


def add_step(batch: dict, step) -> dict:
    """Add the number of finished steps, for losses whose weights follow a schedule."""
    return batch | {STEPS: jnp.full(len(jax.tree.leaves(batch)[0]), step)}


def add_row_indices(batch: dict) -> dict:
    """Add each row's index in the batch, so that dropout is the same wherever the row is computed."""
    return batch | {"rows": jnp.arange(jax.tree.leaves(batch)[0].shape[0])}


def split_microbatches(batch, count: int, mesh: Mesh):
    """[B, ...] -> [count, shards, B / shards / count, ...]; rows are dealt out in turn, so none changes its shard."""
    shards = mesh.shape[DATA]

    def split(x):
        x = jnp.moveaxis(x.reshape(shards, x.shape[0] // shards // count, count, *x.shape[1:]), 2, 0)
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, DATA, FSDP)))

    return jax.tree.map(split, batch)


def loss_weights(
    objective: Objective, config: RunConfig, params, batch: dict, constants, key, mesh: Mesh
) -> dict:
    """The weights of the losses over the whole batch; they depend on the batch alone, so no output is computed."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        shapes = jax.eval_shape(
            lambda params: compute_outputs(objective, config, params, batch, constants, key), params
        )
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return {name: loss.weight for name, loss in compute_losses(objective, zeros, batch).items()}


def collect_metrics(objective: Objective, losses: dict[str, Loss], outputs: dict, batch: dict) -> dict:
    scores = check_pairs(objective, "scores", objective.scores(outputs, batch))
    return {"losses": losses, "scores": scores, "tokens": batch["attention_mask"].sum()}


def compute_losses(objective: Objective, outputs: dict, batch: dict) -> dict[str, Loss]:
    if losses := check_pairs(objective, "losses", objective.losses(outputs, batch)):
        return losses
    raise contract_error(objective, "`losses` returns none")


def check_pairs(objective: Objective, member: str, pairs: dict[str, Loss]) -> dict[str, Loss]:
    """Return what the objective's member returned; refuse all but a dict of sums and weights, which are numbers."""
    wanted = f"`{member}` must return a dict of Loss(sum, weight)"
    if not isinstance(pairs, dict):
        raise contract_error(objective, f"{wanted}, not {type_name(pairs)}")
    for name, pair in pairs.items():
        if not isinstance(pair, Loss):
            raise contract_error(objective, f"{wanted}, and {name} is no Loss")
        if any(shapes := list(map(jnp.shape, pair))):
            raise contract_error(
                objective, f"{wanted} of two numbers, but those of {name} have the shapes {shapes}"
            )
    return pairs


def check_rows(objective: Objective, member: str, values, batch: dict):
    """Return what the objective's member returned; refuse arrays that do not hold a row for each of the batch."""
    rows = len(batch["rows"])
    for value in jax.tree.leaves(values):
        if jnp.shape(value)[:1] != (rows,):
            raise contract_error(
                objective,
                f"`{member}` must return arrays [B, ...] of {rows} rows, not of shape {jnp.shape(value)}",
            )
    return values


def contract_error(objective: Objective, fault: str) -> BertJaxError:
    return BertJaxError(f"the task {type(objective).__name__}: {fault}; see training/objective.py")


def inner_product(a, b):
    products = jax.tree.map(lambda x, y: jnp.vdot(x.astype(jnp.float32), y.astype(jnp.float32)), a, b)
    return sum(jax.tree.leaves(products))
