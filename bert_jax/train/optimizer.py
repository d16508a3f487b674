"""From a gradient to a direction, which the step multiplies by the learning rate and subtracts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.train.config import OptimizerConfig
from bert_jax.train.rules import by_rule, named

# Embeddings decay and biases do not, as in BERT.
DECAYED = [("(bias|scale)$", False), ("", True)]

# A stacked parameter [N, ...] is N tensors, and a fused query, key and value are three: the axes that number them.
TENSORS = [
    ("layers/attention/qkv/kernel", (0, 2)),
    ("layers/attention/qkv/bias", (0, 1)),
    ("layers/", (0,)),
    ("", ()),
]

# Where a parameter stands, from the embeddings up.
DEPTHS = [("^encoder/embeddings/", "embeddings"), ("^encoder/layers/", "layers"), ("", "above")]


def direction(config: OptimizerConfig) -> optax.GradientTransformation:
    # What keeps its value has no part in the norm that is clipped.
    parts = [by_depth(config.frozen_layers, 1.0)] if config.frozen_layers >= 0 else []
    parts += [optax.clip_by_global_norm(config.clip)] if config.clip else []
    parts.append(optax.scale_by_adam(config.beta1, config.beta2, config.epsilon))
    parts.append(
        optax.add_decayed_weights(config.weight_decay, lambda params: by_rule(params, DECAYED, "decay"))
    )
    if config.name == "lamb":
        parts.append(trust())
    if config.layer_decay < 1 or config.frozen_layers >= 0:
        parts.append(by_depth(config.frozen_layers, config.layer_decay))
    return optax.chain(*parts)


def by_depth(frozen_layers: int, decay: float) -> optax.GradientTransformation:
    """Nothing for what is frozen; below the head, `decay` less for each layer further down."""

    def update(updates, params):
        layers = next(leaf.shape[0] for name, leaf in named(updates).items() if "/layers/" in name)
        depths = {"embeddings": np.zeros(1), "layers": 1 + np.arange(layers), "above": np.full(1, layers + 1)}

        def scaled(kind, leaf):
            depth = depths[kind]
            factors = np.where(depth <= frozen_layers, 0, decay ** (layers + 1 - depth))
            return leaf * jnp.asarray(factors, leaf.dtype).reshape(-1, *[1] * (leaf.ndim - 1))

        return by_rule(updates, DEPTHS, "depth", scaled)

    return optax.stateless(update)


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
