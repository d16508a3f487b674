"""The training step of every run, on any mesh, and the evaluation."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.models.kernels.kernel_choice import KernelChoices, kernels_of
from bert_jax.models.mesh import ROWS
from bert_jax.training.gradient import (
    add_row_indices,
    add_step,
    check_rows,
    collect_metrics,
    compute_in_microbatches,
    compute_losses,
    make_gradient,
    map_over_shards,
    split_microbatches,
)
from bert_jax.training.objective import Objective
from bert_jax.training.optimizer import learning_rate_factor
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import (
    StepConstants,
    TrainState,
    abstract_constants,
    abstract_state,
    compute_outputs,
    gather_whole_params,
    get_shardings,
    make_task_optimizer,
)


def make_step(
    objective: Objective, config: RunConfig, mesh: Mesh, kernels: KernelChoices | None = None
) -> jax.stages.Wrapped:
    """Return the function (state, batch, constants) -> (state, metrics), jitted for the mesh; it consumes its state."""
    shardings = get_shardings(abstract_state(objective, config, mesh))
    constants_shardings = get_shardings(abstract_constants(objective, config, mesh))
    gradient = make_gradient(objective, config, mesh, shardings.params)
    optimizer = make_task_optimizer(objective, config)

    @kernels_of(kernels or KernelChoices(trains=True))
    def step(state: TrainState, batch: dict, constants: StepConstants) -> tuple[TrainState, dict]:
        # Gradients.
        key = jax.random.fold_in(jax.random.key(constants.seed, impl=config.prng_impl), state.step)
        gradients, measured = gradient(state.params, add_step(batch, state.step), key, constants)
        # Guard: a number that is not finite anywhere in the gradients makes their norm not finite.
        norm = optax.tree.norm(gradients)
        good = jnp.isfinite(norm) & jnp.isfinite(sum(loss.total for loss in measured["losses"].values()))
        # Update.
        updates, moments = optimizer.update(gradients, state.optimizer, state.params, good=good)
        rate = constants.rate * learning_rate_factor(config.optimizer, config.steps, state.step)
        params = jax.tree.map(
            lambda param, update: jnp.where(good, param - rate * update, param), state.params, updates
        )
        bad = jnp.where(good, 0, state.bad + 1)
        new = TrainState(state.step + 1, params, moments, state.discarded + ~good, bad)
        # Metrics.
        return new, measured | {
            "learning_rate": rate,
            "gradient_norm": norm,
            "discarded": new.discarded,
            "bad": bad,
        }

    return jax.jit(
        step,
        in_shardings=(shardings, NamedSharding(mesh, ROWS), constants_shardings),
        out_shardings=(shardings, NamedSharding(mesh, P())),
        donate_argnums=0,
    )


def make_evaluation(
    objective: Objective, config: RunConfig, mesh: Mesh, kernels: KernelChoices | None = None
) -> jax.stages.Wrapped:
    """Return the function (params, batch, constants) -> (metrics, predictions for the rows), without dropout."""

    shardings = get_shardings(abstract_state(objective, config, mesh)).params

    def measure(outputs, rows):
        measured = collect_metrics(objective, compute_losses(objective, outputs, rows), outputs, rows)
        return measured, check_rows(objective, "predictions", objective.predictions(outputs, rows), rows)

    @kernels_of(kernels or KernelChoices(trains=True))
    def evaluate(params, batch: dict, constants: StepConstants):
        batch, params = add_row_indices(batch), gather_whole_params(objective, params, shardings, mesh)

        def outputs(params, rows):
            return compute_outputs(objective, config, params, rows, constants)

        if objective.whole_batch:
            return measure(compute_in_microbatches(outputs, params, batch, 1, mesh), batch)
        shards = jax.tree.map(lambda x: x[0], split_microbatches(batch, 1, mesh))
        on_shards = map_over_shards(lambda params, rows: measure(outputs(params, rows), rows), mesh)
        measured, predictions = on_shards(params, shards)
        in_rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), predictions)
        return jax.tree.map(lambda x: x.sum(0), measured), in_rows

    return jax.jit(
        evaluate,
        in_shardings=(
            shardings,
            NamedSharding(mesh, ROWS),
            get_shardings(abstract_constants(objective, config, mesh)),
        ),
        out_shardings=NamedSharding(mesh, P()),
    )


class StepCache:
    """Steps and evaluations, shared by runs that differ only in constants: seed, rate, the task's own."""

    def __init__(self) -> None:
        self.kept: list[tuple] = []
        self.kernels = KernelChoices(trains=True)

    def resuming(self, recorded: dict[str, dict]) -> "StepCache":
        """Return a cache whose steps take the recorded kernels: this one, unless its steps took others."""
        taken = self.kernels.record()
        if any(taken.get(key, choice) != choice for key, choice in recorded.items()):
            return StepCache().resuming(recorded)
        self.kernels.recorded |= recorded
        return self

    def get_or_make(self, objective: Objective, config: RunConfig, mesh: Mesh) -> tuple[Callable, Callable]:
        """Return the step and the evaluation of a run, made only once for runs that can share them."""
        optimizer = dataclasses.replace(config.optimizer, learning_rate=0.0)
        key = (objective, optimizer, config.adapter, config.steps, config.prng_impl, config.mesh, mesh)
        for other, step, evaluation in self.kept:
            if other == key:
                return step, evaluation
        programs = (make(objective, config, mesh, self.kernels) for make in (make_step, make_evaluation))
        self.kept.append((key, *programs))
        return self.kept[-1][1:]
