"""From a gradient to a direction, which the step multiplies by the learning rate and subtracts."""

import jax
import jax.numpy as jnp
import optax

from bert_jax.tasks.config import OptimizerConfig
from bert_jax.train.rules import by_rule

# Embeddings decay and biases do not, as in BERT.
DECAYED = [("(bias|scale)$", False), ("", True)]

# A stacked parameter [N, ...] is N tensors, and a fused query, key and value are three: the axes that number them.
TENSORS = [
    ("layers/attention/qkv/kernel", (0, 2)),
    ("layers/attention/qkv/bias", (0, 1)),
    ("layers/", (0,)),
    ("", ()),
]


def direction(config: OptimizerConfig) -> optax.GradientTransformation:
    parts = [optax.clip_by_global_norm(config.clip)] if config.clip else []
    parts.append(optax.scale_by_adam(config.beta1, config.beta2, config.epsilon))
    parts.append(
        optax.add_decayed_weights(config.weight_decay, lambda params: by_rule(params, DECAYED, "decay"))
    )
    if config.name == "lamb":
        parts.append(trust())
    return optax.chain(*parts)


def trust() -> optax.GradientTransformation:
    """LAMB's: each tensor's update gets the norm of the tensor itself, except biases and LayerNorm."""

    def update(updates, state, params):
        scaled = jax.tree.map(
            lambda adapts, tensors, update, param: (
                ratio(tensors, update, param) * update if adapts else update
            ),
            by_rule(params, DECAYED, "decay"),
            by_rule(params, TENSORS, "tensors", lambda axes, leaf: Axes(axes)),
            updates,
            params,
        )
        return scaled, state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


class Axes:
    """A tuple that JAX takes for a leaf."""

    def __init__(self, axes: tuple[int, ...]):
        self.axes = axes


def ratio(tensors: Axes, update, param):
    """|param| / |update| of each tensor, 1 where either is 0."""
    within = tuple(axis for axis in range(param.ndim) if axis not in tensors.axes)
    norms = [jnp.sqrt(jnp.sum(x.astype(jnp.float32) ** 2, within, keepdims=True)) for x in (param, update)]
    return jnp.where((norms[0] > 0) & (norms[1] > 0), norms[0] / jnp.where(norms[1] > 0, norms[1], 1), 1)
