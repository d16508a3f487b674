"""The state of a run, and where its parts lie."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.models.mesh import ROWS
from bert_jax.train.config import RunConfig
from bert_jax.train.optimizer import direction
from bert_jax.train.sharding import check_batch, optimizer_shardings, parameter_shardings
from bert_jax.train.task import Task


@flax.struct.dataclass
class State:
    """What a step takes and gives back; everything else that decides the next one is in the config."""

    step: Any  # steps done
    params: Any
    optimizer: Any
    discarded: Any  # updates that were not finite, in the whole run
    bad: Any  # of these, how many just now, one after the other


def first_state(task: Task, config: RunConfig, params) -> State:
    count = jnp.zeros((), jnp.int32)
    return State(
        count + max(config.first_step, 0), params, direction(config.optimizer).init(params), count, count
    )


def fresh_params(task: Task, config: RunConfig):
    # The generator that is the same everywhere, also where dropout draws from the hardware's.
    key = jax.random.key(config.seed, impl="threefry2x32")
    return task.layout.init(key)


def abstract_state(task: Task, config: RunConfig, mesh: Mesh) -> State:
    """Shapes and shardings of the state, before anything is allocated."""
    shapes = jax.eval_shape(lambda: first_state(task, config, fresh_params(task, config)))
    params = parameter_shardings(shapes.params, mesh)
    everywhere = NamedSharding(mesh, P())
    shardings = State(
        everywhere,
        params,
        optimizer_shardings(
            direction(config.optimizer), shapes.params, params, mesh, config.mesh.shard_optimizer
        ),
        everywhere,
        everywhere,
    )
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        shardings,
    )


def shardings_of(abstract):
    return jax.tree.map(lambda leaf: leaf.sharding, abstract)


def initial_state(task: Task, config: RunConfig, mesh: Mesh, params=None) -> State:
    """The state of step 0, made where it lies: no device ever holds more than its own part.

    `params` are NumPy arrays of a model to go on from.
    """
    shardings = shardings_of(abstract_state(task, config, mesh))
    if params is None:
        return jax.jit(
            lambda: first_state(task, config, fresh_params(task, config)), out_shardings=shardings
        )()
    placed = jax.tree.map(
        lambda leaf, sharding: jax.make_array_from_callback(
            leaf.shape, sharding, lambda index: np.asarray(leaf)[index]
        ),
        params,
        shardings.params,
    )
    return jax.jit(lambda params: first_state(task, config, params), out_shardings=shardings)(placed)


def abstract_batch(task: Task, config: RunConfig, mesh: Mesh, rows: int, length: int) -> dict:
    check_batch(rows, mesh, config.mesh.accumulate)
    sharding = NamedSharding(mesh, ROWS)
    features = task.features(rows, length).items()
    return {name: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for name, (shape, dtype) in features}


def gathered(params: dict, mesh: Mesh) -> dict:
    """The whole parameters in the memory of every host."""
    return jax.device_get(jax.jit(lambda params: params, out_shardings=NamedSharding(mesh, P()))(params))
