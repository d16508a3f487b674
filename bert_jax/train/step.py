"""The step that every run takes, on any mesh, and the evaluation beside it.

The compiler splits the work over the mesh. Left to itself it would reduce the gradients of every microbatch over all
devices, so each of the `data` axis's shares of the rows gets gradients of its own (a leading axis, split over `data`),
which are summed over the microbatches where they are, and reduced once a step.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.losses import Loss
from bert_jax.models.mesh import ROWS
from bert_jax.train.config import RunConfig
from bert_jax.train.optimizer import direction
from bert_jax.train.schedule import share_at
from bert_jax.train.state import State, abstract_state, shardings_of
from bert_jax.train.task import Task


def make_step(task: Task, config: RunConfig, mesh: Mesh) -> jax.stages.Wrapped:
    """(state, batch) -> (state, metrics), compiled for the mesh; the state given is consumed."""
    step, shardings = uncompiled(task, config, mesh)

    def with_its_own(state: State, batch: dict) -> tuple[State, dict]:
        return step(state, batch, config.seed, config.optimizer.rate)

    return jax.jit(
        with_its_own, in_shardings=shardings, out_shardings=(shardings[0], NamedSharding(mesh, P())), donate_argnums=0
    )  # fmt: skip


class Programs:
    """Steps and evaluations of several runs: those that differ by seed and rate alone share theirs."""

    def __init__(self) -> None:
        self.kept: list[tuple] = []

    def of(self, task: Task, config: RunConfig, mesh: Mesh) -> tuple[Callable, Callable]:
        """As `make_step` and `make_evaluation` give them."""
        given = (
            task,
            dataclasses.replace(config.optimizer, rate=0.0),
            config.steps,
            config.random,
            config.mesh,
            mesh,
        )
        found = next((programs for same, *programs in self.kept if same == given), None)
        everywhere = NamedSharding(mesh, P())
        if found is None:
            step, shardings = uncompiled(task, config, mesh)
            compiled = jax.jit(
                step, in_shardings=(*shardings, everywhere, everywhere), out_shardings=(shardings[0], everywhere),
                donate_argnums=0,
            )  # fmt: skip
            found = [compiled, make_evaluation(task, config, mesh)]
            self.kept.append((given, *found))
        compiled, evaluation = found

        def placed(value):
            return jax.make_array_from_callback((), everywhere, lambda _: value)

        own = placed(np.int32(config.seed)), placed(np.float32(config.optimizer.rate))
        return lambda state, batch: compiled(state, batch, *own), evaluation


def uncompiled(task: Task, config: RunConfig, mesh: Mesh) -> tuple[Callable, tuple]:
    """(state, batch, seed, rate at its peak) -> (state, metrics); and the shardings of state and batch."""
    optimizer = direction(config.optimizer)
    state_shardings = shardings_of(abstract_state(task, config, mesh))
    gradient = make_gradient(task, config, mesh, state_shardings.params)

    def step(state: State, batch: dict, seed, peak) -> tuple[State, dict]:
        key = jax.random.fold_in(jax.random.key(seed, impl=config.random), state.step)
        gradients, measured = gradient(state.params, batch, key)
        updates, moments = optimizer.update(gradients, state.optimizer, state.params)
        rate = peak * share_at(config.optimizer, config.steps, state.step)
        params = jax.tree.map(lambda param, update: param - rate * update, state.params, updates)
        norm = optax.tree.norm(gradients)
        # Enough to look at: a number that is not finite anywhere in the gradients makes their norm not finite.
        good = jnp.isfinite(norm) & jnp.isfinite(sum(loss.total for loss in measured["losses"].values()))
        params, moments = jax.tree.map(
            lambda new, old: jnp.where(good, new, old), (params, moments), (state.params, state.optimizer)
        )
        bad = jnp.where(good, 0, state.bad + 1)
        new = State(state.step + 1, params, moments, state.discarded + ~good, bad)
        return new, measured | {"rate": rate, "gradient_norm": norm, "discarded": new.discarded, "bad": bad}

    return step, (state_shardings, NamedSharding(mesh, ROWS))


def make_gradient(task: Task, config: RunConfig, mesh: Mesh, shardings):
    """(params, batch, key) -> (gradients of the whole batch's loss, what was measured on it)."""
    each_share = jax.tree.map(lambda sharding: NamedSharding(mesh, P("data", *sharding.spec)), shardings)

    def on_one_share(params, rows, weights, key):
        def objective(params):
            outputs = task.outputs(params, rows, True, key)
            losses = task.losses(outputs, rows)
            total = sum(Loss(loss.total, weights[name]).mean for name, loss in losses.items())
            return total, measure(task, losses, outputs, rows)

        (_, measured), gradients = jax.value_and_grad(objective, has_aux=True)(params)
        return gradients, measured

    def gradient(params, batch, key):
        weights = loss_weights(task, params, batch, mesh)
        parts = microbatches(with_rows(batch), config.mesh.accumulate, mesh)

        def of(part):
            gradients, measured = by_share(on_one_share, mesh)(params, part, weights, key)
            return jax.lax.with_sharding_constraint(gradients, each_share), measured

        first = jax.tree.map(lambda x: x[0], parts)
        if config.mesh.accumulate == 1:
            sums = of(first)
        else:
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(of, first))
            sums, _ = jax.lax.scan(
                lambda sums, part: (jax.tree.map(jnp.add, sums, of(part)), None), nothing, parts
            )
        return jax.tree.map(lambda x: x.sum(0), sums)

    return gradient


def make_evaluation(task: Task, config: RunConfig, mesh: Mesh) -> Callable[[dict, dict], dict]:
    """(params, batch) -> what is measured on it, without dropout, and the task's predictions for its rows."""

    def on_one_share(params, rows):
        outputs = task.outputs(params, rows, False)
        return measure(task, task.losses(outputs, rows), outputs, rows), task.predictions(outputs, rows)

    def evaluate(params, batch):
        shares = jax.tree.map(lambda x: x[0], microbatches(batch, 1, mesh))
        measured, predicted = by_share(on_one_share, mesh)(params, shares)
        in_rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), predicted)
        return jax.tree.map(lambda x: x.sum(0), measured), in_rows

    return jax.jit(
        evaluate,
        in_shardings=(shardings_of(abstract_state(task, config, mesh)).params, NamedSharding(mesh, ROWS)),
        out_shardings=NamedSharding(mesh, P()),
    )


def by_share(function: Callable, mesh: Mesh) -> Callable:
    """`function(params, rows, ...)` on [shares, B / shares, ...], its results with a leading axis of shares."""
    one = mesh.shape["data"] == 1

    def apart(params, rows, *others):
        # The mesh in context is how the model knows what it runs on.
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            if one:
                results = function(params, jax.tree.map(lambda x: x[0], rows), *others)
                return jax.tree.map(lambda x: x[None], results)
            mapped = jax.vmap(function, (None, 0, *(None for _ in others)), spmd_axis_name="data")
            return mapped(params, rows, *others)

    return apart


def with_rows(batch: dict) -> dict:
    """The batch with each row's place in it, which dropout follows wherever the row is computed."""
    return batch | {"rows": jnp.arange(jax.tree.leaves(batch)[0].shape[0])}


def microbatches(batch: dict, count: int, mesh: Mesh) -> dict:
    """[B, ...] -> [count, shares, B / shares / count, ...]; rows are dealt out in turn, so each stays where it is."""
    shares = mesh.shape["data"]

    def split(x):
        x = jnp.moveaxis(x.reshape(shares, x.shape[0] // shares // count, count, *x.shape[1:]), 2, 0)
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, "data", "fsdp")))

    return jax.tree.map(split, batch)


def loss_weights(task: Task, params, batch, mesh: Mesh) -> dict:
    """The losses' weights over the whole batch, before any output is there: they are the batch's alone."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        shapes = jax.eval_shape(lambda params: task.outputs(params, batch, False), params)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return {name: loss.weight for name, loss in task.losses(nothing, batch).items()}


def measure(task: Task, losses: dict[str, Loss], outputs: dict, batch: dict) -> dict:
    return {"losses": losses, "scores": task.scores(outputs, batch), "tokens": batch["mask"].sum()}
