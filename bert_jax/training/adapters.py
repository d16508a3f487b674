"""Training with adapters: which parameters a run trains, and how the model reads them beside the frozen ones.

The trained parameters are the modules that `trained_modules` names and, under ADAPTERS, the matrices of each adapter.
The optimizer, the gradients and the checkpoints know nothing of the frozen ones, which are constants of the step.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from bert_jax.core.errors import BertJaxError
from bert_jax.data.batch_source import BatchSource
from bert_jax.hub.adapter import TrainedAdapter
from bert_jax.hub.adapter_targets import AdapterConfig, AdapterTarget, find_targets, trained_modules
from bert_jax.models.adapted_kernel import AdaptedKernel
from bert_jax.training.objective import Objective
from bert_jax.training.parameter_rules import params_by_name
from bert_jax.training.run_config import RunConfig
from bert_jax.training.task import Task, save_models

ADAPTERS = "adapters"  # their name among the trained parameters
SALT = 0xADA  # keeps the random numbers of adapters apart from those of the layers


def targets_of(objective: Objective, config: AdapterConfig, params: dict) -> list[AdapterTarget]:
    """Return the kernels that have adapters, among parameters of any kind of leaf with a shape."""
    shapes = {name: tuple(leaf.shape) for name, leaf in params_by_name(params).items()}
    return find_targets(objective.layout, config.target_modules, shapes)


def split_params(objective: Objective, config: RunConfig, params: dict) -> tuple[dict, dict]:
    """Return the parameters that are trained, of which adapters change nothing yet, and those that are frozen."""
    if not config.adapter.rank:
        return params, {}
    if len(objective.layouts) > 1:
        raise BertJaxError(
            f"the task {config.task} trains several models, which adapters do not support; leave "
            "--config.adapter.rank out"
        )
    modules = set(trained_modules(params))
    trained = {name: part for name, part in params.items() if name in modules}
    key = jax.random.fold_in(jax.random.key(config.seed, impl="threefry2x32"), SALT)
    adapters = {}
    for number, target in enumerate(targets_of(objective, config.adapter, params)):
        shapes, limit = target.shapes(config.adapter), target.inputs**-0.5
        a = jax.random.uniform(jax.random.fold_in(key, number), shapes["a"], minval=-limit, maxval=limit)
        own = {"a": a, "b": jnp.zeros(shapes["b"])}
        if config.adapter.use_dora:
            own["magnitude"] = column_norms(target, params_by_name(params)[target.path])
        adapters[target.name] = own
    return trained | {ADAPTERS: adapters}, {
        name: part for name, part in params.items() if name not in modules
    }


def column_norms(target: AdapterTarget, kernel):
    """Return the norm of each column of the adapted blocks of a stacked kernel, [N, M, width]."""
    columns = kernel.reshape(target.groups, target.inputs, target.num_blocks, -1)[:, :, list(target.blocks)]
    return jnp.sqrt(jnp.square(columns.astype(jnp.float32)).sum(1))


def join_params(
    objective: Objective,
    config: AdapterConfig,
    trained: dict,
    frozen: dict,
    rows: Any = None,
    key: Any = None,
) -> dict:
    """Return the parameters that the model reads: kernels with adapters in the place of the frozen ones.

    With a key, adapters have dropout, whose random numbers depend on the `rows` of the batch.
    """
    if not config.rank:
        return trained
    flat = params_by_name(frozen)
    for number, target in enumerate(targets_of(objective, config, frozen)):
        dropout: dict[str, Any] = {}
        if config.dropout and key is not None:
            own = jax.random.fold_in(jax.random.fold_in(key, SALT), number)
            dropout = {
                "dropout_key": jax.random.split(own, target.groups),
                "rows": None if rows is None else jnp.broadcast_to(rows, (target.groups, *rows.shape)),
            }
        flat[target.path] = AdaptedKernel(
            flat[target.path], **trained[ADAPTERS][target.name], blocks=target.blocks,
            num_blocks=target.num_blocks, scale=config.scale, dropout=config.dropout, **dropout,
        )  # fmt: skip
    return unflatten_dict(flat, sep="/") | {name: part for name, part in trained.items() if name != ADAPTERS}


def merge_params(objective: Objective, config: AdapterConfig, trained: dict, frozen: dict) -> dict:
    """Return the parameters of a plain model that computes the same, as NumPy arrays."""
    if not config.rank:
        return trained
    joined = join_params(objective, config, trained, frozen)

    def merged(leaf):
        return np.asarray(jax.vmap(AdaptedKernel.merge)(leaf) if isinstance(leaf, AdaptedKernel) else leaf)

    return jax.tree.map(merged, joined, is_leaf=lambda leaf: isinstance(leaf, AdaptedKernel))


def trained_adapter(
    objective: Objective, config: RunConfig, trained: dict, frozen: dict
) -> TrainedAdapter | None:
    """Return the adapters of a run for its files; None if it has none."""
    if not config.adapter.rank:
        return None
    shapes = {name: tuple(leaf.shape) for name, leaf in params_by_name(frozen).items()}
    return TrainedAdapter(config.adapter, config.init, jax.device_get(trained[ADAPTERS]), shapes)


def save_trained_models(
    directory: Path, task: Task, config: RunConfig, data: BatchSource, trained: dict, frozen: dict
) -> None:
    """Save the models of a run, given the parameters that it trained and those that it left as they were."""
    params = task.final_params(merge_params(task, config.adapter, trained, frozen), data)
    save_models(directory, task, params, data.tokenizer, trained_adapter(task, config, trained, frozen))
