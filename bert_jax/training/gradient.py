"""The gradient of a batch's loss, on any mesh and in any number of microbatches.

The compiler splits the work over the mesh. Left to itself it would reduce the gradients of every microbatch over all
devices, so each shard of the `data` axis gets its own gradients (a leading axis, split over `data`), which are summed
over the microbatches where they are, and reduced once a step.

A loss of the whole batch needs the outputs of all rows before the gradient of any row. So the outputs of all rows are
computed first, without gradients. Then the loss gives its gradient with respect to each output. Then every microbatch
is run again: its loss is the inner product of its outputs with these gradients, so the parameters get the same
gradient. Dropout draws the same numbers both times.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.core.errors import BertJaxError
from bert_jax.core.typed_json import type_name
from bert_jax.losses.loss import Loss
from bert_jax.models.mesh import DATA, FSDP, ROWS
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharded_gradient import make_sharded_gradient, sum_in_turn
from bert_jax.training.sharding import is_split_over_data
from bert_jax.training.state import gather_whole_params
from bert_jax.training.task import Task


def make_gradient(task: Task, config: RunConfig, mesh: Mesh, shardings) -> Callable:
    """Return a function (params, batch, key, constants) -> (gradients of the batch's loss, its metrics).

    Gradients are sharded like the parameters, by `shardings`.
    """
    count = config.mesh.gradient_accumulation_steps
    sharded_gradient = None
    if is_split_over_data(config.mesh, mesh) or config.mesh.gradient_reduce_dtype != "float32":
        sharded_gradient = make_sharded_gradient(task, config, mesh, shardings)

    def accumulate_gradients(objective: Callable, params, rows):
        """Sum the gradients and metrics of `objective(params, some of the rows)` over all rows."""
        parts = split_microbatches(rows, count, mesh)
        if sharded_gradient:
            return sharded_gradient(objective, params, parts)
        per_shard = jax.tree.map(lambda sharding: NamedSharding(mesh, P(DATA, *sharding.spec)), shardings)

        def shard_gradients(part):
            (_, measured), gradients = map_over_shards(jax.value_and_grad(objective, has_aux=True), mesh)(
                params, part
            )
            return jax.lax.with_sharding_constraint(gradients, per_shard), measured

        if count == 1:
            sums = shard_gradients(jax.tree.map(lambda x: x[0], parts))
        else:
            sums = sum_in_turn(shard_gradients, parts)
        return jax.tree.map(lambda x: x.sum(0), sums)

    def gradient(params, batch, key, constants):
        batch, params = add_row_indices(batch), gather_whole_params(task, params, shardings, mesh)
        if task.whole_batch:
            params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
            return whole_batch_gradient(params, batch, key, constants)
        weights = loss_weights(task, params, batch, constants, key, mesh)

        def objective(params, rows):
            outputs = task.outputs(params, rows, constants, key)
            losses = compute_losses(task, outputs, rows)
            total = sum(Loss(loss.total, weights[name]).mean for name, loss in losses.items())
            return total, collect_metrics(task, losses, outputs, rows)

        return accumulate_gradients(objective, params, batch)

    def whole_batch_gradient(params, batch, key, constants):
        def outputs(params, rows):
            return check_rows(task, "outputs", task.outputs(params, rows, constants, key), rows)

        def loss(all_outputs):
            losses = compute_losses(task, all_outputs, batch)
            return sum(loss.mean for loss in losses.values()), collect_metrics(
                task, losses, all_outputs, batch
            )

        def direct(params):
            return loss(compute_in_microbatches(outputs, params, batch, 1, mesh))

        def objective(params, part):
            rows, slopes = part
            return inner_product(outputs(params, rows), slopes), {}

        if count == 1:  # nothing needs to be computed twice
            (_, measured), gradients = jax.value_and_grad(direct, has_aux=True)(params)
            return jax.lax.with_sharding_constraint(gradients, shardings), measured
        all_outputs = compute_in_microbatches(outputs, params, batch, count, mesh)
        (_, measured), slopes = jax.value_and_grad(loss, has_aux=True)(all_outputs)
        return accumulate_gradients(objective, params, (batch, slopes))[0], measured

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


def loss_weights(task: Task, params, batch: dict, constants, key, mesh: Mesh) -> dict:
    """The weights of the losses over the whole batch; they depend on the batch alone, so no output is computed."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        shapes = jax.eval_shape(lambda params: task.outputs(params, batch, constants, key), params)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return {name: loss.weight for name, loss in compute_losses(task, zeros, batch).items()}


def collect_metrics(task: Task, losses: dict[str, Loss], outputs: dict, batch: dict) -> dict:
    scores = check_pairs(task, "scores", task.scores(outputs, batch))
    return {"losses": losses, "scores": scores, "tokens": batch["attention_mask"].sum()}


def compute_losses(task: Task, outputs: dict, batch: dict) -> dict[str, Loss]:
    if losses := check_pairs(task, "losses", task.losses(outputs, batch)):
        return losses
    raise contract_error(task, "`losses` returns none")


def check_pairs(task: Task, member: str, pairs: dict[str, Loss]) -> dict[str, Loss]:
    """Return what the task's member returned; refuse all but a dict of sums and weights, which are numbers."""
    wanted = f"`{member}` must return a dict of Loss(sum, weight)"
    if not isinstance(pairs, dict):
        raise contract_error(task, f"{wanted}, not {type_name(pairs)}")
    for name, pair in pairs.items():
        if not isinstance(pair, Loss):
            raise contract_error(task, f"{wanted}, and {name} is no Loss")
        if any(shapes := list(map(jnp.shape, pair))):
            raise contract_error(
                task, f"{wanted} of two numbers, but those of {name} have the shapes {shapes}"
            )
    return pairs


def check_rows(task: Task, member: str, values, batch: dict):
    """Return what the task's member returned; refuse arrays that do not hold a row for each of the batch."""
    rows = len(batch["rows"])
    for value in jax.tree.leaves(values):
        if jnp.shape(value)[:1] != (rows,):
            raise contract_error(
                task,
                f"`{member}` must return arrays [B, ...] of {rows} rows, not of shape {jnp.shape(value)}",
            )
    return values


def contract_error(task: Task, fault: str) -> BertJaxError:
    return BertJaxError(f"the task {type(task).__name__}: {fault}; see training/task.py")


def inner_product(a, b):
    products = jax.tree.map(lambda x, y: jnp.vdot(x.astype(jnp.float32), y.astype(jnp.float32)), a, b)
    return sum(jax.tree.leaves(products))
