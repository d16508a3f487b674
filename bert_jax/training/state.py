"""The state of a run, its constants, and the shardings of both."""

import math
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.models.mesh import ROWS
from bert_jax.training.optimizer import check_depths, direction
from bert_jax.training.parameter_rules import PARAMETERS, by_rule
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import (
    check_batch,
    gather_over_data,
    optimizer_shardings,
    parameter_shardings,
    split_over_data,
)
from bert_jax.training.task import Features, Task


@flax.struct.dataclass
class State:
    """The values that a step takes and returns updated; checkpoints store them."""

    step: Any  # number of finished steps
    params: Any
    optimizer: Any
    discarded: Any  # number of updates that were not finite, in the whole run
    bad: Any  # number of the latest updates in a row that were not finite


@flax.struct.dataclass
class Constants:
    """The values that a step reads and never changes. Runs that differ only in them can share a compiled step."""

    seed: Any
    rate: Any  # the peak learning rate
    task: Any  # the task's own, such as the parameters of a teacher


def optimizer_of(task: Task, config: RunConfig) -> optax.GradientTransformationExtraArgs:
    for layout in task.layouts.values():
        check_depths(config.optimizer, layout.config)
    return direction(config.optimizer, rules_of(task), task.frozen)


def rules_of(task: Task):
    return [*task.rules, *PARAMETERS]


def fresh_params(task: Task, config: RunConfig):
    # This generator gives the same numbers everywhere, even if dropout uses the hardware's.
    return task.init(jax.random.key(config.seed, impl="threefry2x32"))


def first_state(task: Task, config: RunConfig, params) -> State:
    count = jnp.zeros((), jnp.int32)
    moments = optimizer_of(task, config).init(params)
    return State(count + max(config.first_step, 0), params, moments, count, count)


def abstract_state(task: Task, config: RunConfig, mesh: Mesh) -> State:
    """Return the shapes and shardings of the state; nothing is allocated."""
    shapes = jax.eval_shape(lambda: first_state(task, config, fresh_params(task, config)))
    params = whole_shardings(task, shapes.params, mesh)
    if config.mesh.shard_optimizer:
        params = split_over_data(shapes.params, params, mesh, rules_of(task))
    moments = optimizer_shardings(optimizer_of(task, config), shapes.params, params, mesh)
    everywhere = NamedSharding(mesh, P())
    return with_shardings(shapes, State(everywhere, params, moments, everywhere, everywhere))


def least_bytes(state: State) -> int:
    """The number of bytes that each device holds of an abstract state and its gradients."""
    leaves = jax.tree.leaves((state, state.params))
    return sum(leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)


def whole_shardings(task: Task, params, mesh: Mesh):
    """The shardings of the parameters while the model reads them."""
    return parameter_shardings(params, mesh, rules_of(task))


def whole_params(task: Task, params, shardings, mesh: Mesh):
    """Gather whole parameters over the data axis, given their `shardings`, in the dtypes that the model reads."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        dtypes = {layout.config.computed_dtype for layout in task.layouts.values()}
    narrow = dtypes.pop() if len(dtypes) == 1 else "float32"
    sent = by_rule(
        params, rules_of(task), lambda rule, name, leaf: jnp.dtype(narrow if rule.in_products else leaf.dtype)
    )
    return gather_over_data(params, shardings, whole_shardings(task, params, mesh), sent)


def abstract_constants(task: Task, mesh: Mesh) -> Constants:
    """Return the shapes and shardings of the constants; the task's own are sharded like parameters."""
    shapes = jax.eval_shape(lambda: Constants(np.int32(0), np.float32(0), task.constants()))
    everywhere = NamedSharding(mesh, P())
    shardings = parameter_shardings(shapes.task, mesh, rules_of(task))
    return with_shardings(shapes, Constants(everywhere, everywhere, shardings))


def with_shardings(shapes, shardings):
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        shardings,
    )


def shardings_of(abstract):
    return jax.tree.map(lambda leaf: leaf.sharding, abstract)


def initial_state(task: Task, config: RunConfig, mesh: Mesh, params=None) -> State:
    """Make the first state, sharded from the start: no device ever holds more than its own part.

    `params` are NumPy arrays of a model to start from; None: random initial values.
    """
    shardings = shardings_of(abstract_state(task, config, mesh))
    if params is None:
        first = jax.jit(
            lambda: first_state(task, config, fresh_params(task, config)), out_shardings=shardings
        )
        return first()
    first = jax.jit(lambda params: first_state(task, config, params), out_shardings=shardings)
    return first(place(params, shardings.params))


def constants_of(task: Task, config: RunConfig, mesh: Mesh) -> Constants:
    # jax.random.key() takes the low 32 bits of a Python integer, too.
    seed = np.int64(config.seed).astype(np.int32)
    values = Constants(seed, np.float32(config.optimizer.learning_rate), task.constants())
    return place(values, shardings_of(abstract_constants(task, mesh)))


def place(tree, shardings):
    """Put NumPy arrays on the mesh, by `shardings`."""
    return jax.tree.map(
        lambda leaf, sharding: jax.make_array_from_callback(
            np.shape(leaf), sharding, lambda index: np.asarray(leaf)[index]
        ),
        tree,
        shardings,
    )


def abstract_batch(features: Features, config: RunConfig, mesh: Mesh) -> dict:
    (rows,) = {shape[0] for shape, _ in features.values()}
    check_batch(rows, mesh, config.mesh.gradient_accumulation_steps)
    sharding = NamedSharding(mesh, ROWS)
    return {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
        for name, (shape, dtype) in features.items()
    }


def gathered(params: dict, mesh: Mesh) -> dict:
    """Return the whole parameters in the memory of every host."""
    return jax.device_get(jax.jit(lambda params: params, out_shardings=NamedSharding(mesh, P()))(params))
