"""The state of a run, its constants, and the shardings of both."""

import math
from dataclasses import replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax.data.batch_source import Features
from bert_jax.models.mesh import ROWS
from bert_jax.training.adapters import ADAPTERS, join_params, split_params
from bert_jax.training.objective import Objective
from bert_jax.training.optimizer import check_layer_settings, make_optimizer
from bert_jax.training.parameter_rules import PARAMETER_RULES, map_with_rules
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import (
    check_batch,
    gather_over_data,
    is_split_over_data,
    optimizer_shardings,
    parameter_shardings,
    split_over_data,
)


@flax.struct.dataclass
class TrainState:
    """The values that a step takes and returns updated; checkpoints store them."""

    step: Any  # number of finished steps
    params: Any
    optimizer: Any
    discarded: Any  # number of updates that were not finite, in the whole run
    bad: Any  # number of the latest updates in a row that were not finite


@flax.struct.dataclass
class StepConstants:
    """The values that a step reads and never changes. Runs that differ only in them can share a compiled step."""

    seed: Any
    rate: Any  # the peak learning rate
    objective: Any  # its own, such as the parameters of a teacher
    frozen: Any = flax.struct.field(default_factory=dict)  # the parameters beside adapters


def make_task_optimizer(objective: Objective, config: RunConfig) -> optax.GradientTransformationExtraArgs:
    for layout in objective.layouts.values():
        check_layer_settings(config.optimizer, layout.config)
    return make_optimizer(config.optimizer, collect_rules(objective), objective.frozen)


def collect_rules(objective: Objective):
    return [*objective.rules, *PARAMETER_RULES]


def init_random_params(objective: Objective, config: RunConfig):
    # This generator gives the same numbers everywhere, even if dropout uses the hardware's.
    return objective.init(jax.random.key(config.seed, impl="threefry2x32"))


def init_split_params(objective: Objective, config: RunConfig) -> tuple[dict, dict]:
    return split_params(objective, config, init_random_params(objective, config))


def first_state(objective: Objective, config: RunConfig, params) -> TrainState:
    count = jnp.zeros((), jnp.int32)
    moments = make_task_optimizer(objective, config).init(params)
    return TrainState(count + config.first_step, params, moments, count, count)


def abstract_state(objective: Objective, config: RunConfig, mesh: Mesh) -> TrainState:
    """Return the shapes and shardings of the state; nothing is allocated."""
    shapes = jax.eval_shape(lambda: first_state(objective, config, init_split_params(objective, config)[0]))
    params = whole_shardings(objective, shapes.params, mesh)
    if is_split_over_data(config.mesh, mesh):
        params = split_over_data(shapes.params, params, mesh, collect_rules(objective))
    moments = optimizer_shardings(make_task_optimizer(objective, config), shapes.params, params, mesh)
    everywhere = NamedSharding(mesh, P())
    return attach_shardings(shapes, TrainState(everywhere, params, moments, everywhere, everywhere))


def count_parameters(trained: dict, objective: Objective, config: RunConfig, mesh: Mesh) -> str:
    """Say how many parameters a run has, and how many of them it trains."""
    frozen = abstract_constants(objective, config, mesh).frozen if config.adapter.rank else {}
    own, rest = (sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (trained, frozen))
    if not rest:
        return f"{own:,} parameters"
    return f"{own + rest:,} parameters, of which {own:,} ({own / (own + rest):.2%}) are trained,"


def least_bytes(state: TrainState) -> int:
    """The number of bytes that each device holds of an abstract state and its gradients."""
    return device_bytes((state, state.params))


def device_bytes(tree) -> int:
    """The number of bytes that each device holds of a tree of shapes on the mesh."""
    leaves = jax.tree.leaves(tree)
    return sum(leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)


def whole_shardings(objective: Objective, params, mesh: Mesh):
    """The shardings of the parameters while the model reads them."""
    return parameter_shardings(params, mesh, collect_rules(objective))


def gather_whole_params(objective: Objective, params, shardings, mesh: Mesh):
    """Gather whole parameters over the data axis, given their `shardings`, in the dtypes that the model reads."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        dtypes = {layout.config.computed_dtype for layout in objective.layouts.values()}
    narrow = dtypes.pop() if len(dtypes) == 1 else "float32"
    sent = map_with_rules(
        params,
        collect_rules(objective),
        lambda rule, name, leaf: jnp.dtype(narrow if rule.matmul_only else leaf.dtype),
    )
    return gather_over_data(params, shardings, whole_shardings(objective, params, mesh), sent)


def compute_outputs(
    objective: Objective, config: RunConfig, params: dict, batch: dict, constants: StepConstants, key=None
) -> dict:
    """Compute the objective's outputs, given the trained parameters; with a key, dropout is on."""
    whole = join_params(objective, config.adapter, params, constants.frozen, batch.get("rows"), key)
    return objective.outputs(whole, batch, constants.objective, key)


def abstract_constants(objective: Objective, config: RunConfig, mesh: Mesh) -> StepConstants:
    """Return the shapes and shardings of the constants; arrays are sharded like parameters."""

    def constants() -> StepConstants:
        frozen = init_split_params(objective, config)[1] if config.adapter.rank else {}
        return StepConstants(np.int32(0), np.float32(0), objective.constants(), frozen)

    shapes, rules, everywhere = jax.eval_shape(constants), collect_rules(objective), NamedSharding(mesh, P())
    shardings = (parameter_shardings(tree, mesh, rules) for tree in (shapes.objective, shapes.frozen))
    return attach_shardings(shapes, StepConstants(everywhere, everywhere, *shardings))


def attach_shardings(shapes, shardings):
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        shardings,
    )


def get_shardings(abstract):
    return jax.tree.map(lambda leaf: leaf.sharding, abstract)


def initial_state(objective: Objective, config: RunConfig, mesh: Mesh, params=None) -> TrainState:
    """Make the first state, sharded from the start: no device ever holds more than its own part.

    `params` are NumPy arrays of a model to start from; None: random initial values.
    """
    shardings = get_shardings(abstract_state(objective, config, mesh))
    if params is None:
        first = jax.jit(
            lambda: first_state(objective, config, init_split_params(objective, config)[0]),
            out_shardings=shardings,
        )
        return first()
    params, _ = split_params(objective, config, params)
    first = jax.jit(lambda params: first_state(objective, config, params), out_shardings=shardings)
    return first(place_on_mesh(params, shardings.params))


def average_params(first, second, share: float):
    """Average two trees of parameters on the devices; `share` is the weight of the first."""

    def mean(path, a, b):
        # An adapter is a product, of which the mean has one factor: the other is 0 in `first`.
        return b if path[0].key == ADAPTERS and path[-1].key == "a" else share * a + (1 - share) * b

    return jax.jit(lambda *trees: jax.tree_util.tree_map_with_path(mean, *trees))(first, second)


def make_constants(objective: Objective, config: RunConfig, mesh: Mesh, params=None) -> StepConstants:
    """Make the constants on the mesh; `params` are as for `initial_state`."""
    # jax.random.key() takes the low 32 bits of a Python integer, too.
    seed = np.int64(config.seed).astype(np.int32)
    shardings = get_shardings(abstract_constants(objective, config, mesh))
    values = StepConstants(seed, np.float32(config.optimizer.learning_rate), objective.constants())
    placed = place_on_mesh(values, replace(shardings, frozen={}))
    if not config.adapter.rank:
        return placed
    if params is not None:
        frozen = place_on_mesh(split_params(objective, config, params)[1], shardings.frozen)
    else:
        frozen = jax.jit(lambda: init_split_params(objective, config)[1], out_shardings=shardings.frozen)()
    return replace(placed, frozen=frozen)


def place_on_mesh(tree, shardings):
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


def gather_params(params: dict, mesh: Mesh) -> dict:
    """Return the whole parameters in the memory of every host."""
    return jax.device_get(jax.jit(lambda params: params, out_shardings=NamedSharding(mesh, P()))(params))
