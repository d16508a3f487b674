"""The optimizer turns gradients into directions; the step multiplies them by the learning rate and subtracts them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.core.errors import BertJaxError
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.training.parameter_rules import (
    PARAMETER_RULES,
    ParameterRule,
    Rules,
    map_with_rules,
    match_rule,
    params_by_name,
)
from bert_jax.training.run_config import OptimizerConfig


def make_optimizer(
    config: OptimizerConfig, rules: Rules = PARAMETER_RULES, frozen: Rules = ()
) -> optax.GradientTransformationExtraArgs:
    """Make the optimizer; `frozen` says which parameters keep their values, beside those that the config freezes."""

    def decays(params):
        return map_with_rules(params, rules, lambda rule, name, leaf: rule.decays)

    freezes = config.frozen_layers >= 0 or bool(frozen)
    # Frozen parameters have no part in the norm that is clipped.
    parts = [scale_by_depth(config.frozen_layers, 1.0, rules, frozen)] if freezes else []
    parts += [clip_by_global_norm(config.max_grad_norm)] if config.max_grad_norm else []
    parts.append(guarded_adam(config.beta1, config.beta2, config.epsilon))
    parts.append(optax.add_decayed_weights(config.weight_decay, decays))
    if config.name == "lamb":
        parts.append(scale_by_trust_ratio(rules))
    if config.layer_decay < 1 or freezes:
        parts.append(scale_by_depth(config.frozen_layers, config.layer_decay, rules, frozen))
    parts.append(scale_by_rate(rules))
    return optax.chain(*parts)


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Clip by the global norm: one factor for all gradients.

    optax divides each gradient by the norm, and XLA for CPUs writes the quotients to memory.
    """

    def update(gradients, params):
        factor = jnp.minimum(1, limit / optax.tree.norm(gradients))
        return jax.tree.map(lambda gradient: gradient * factor.astype(gradient.dtype), gradients)

    return optax.stateless(update)


def guarded_adam(beta1: float, beta2: float, epsilon: float) -> optax.GradientTransformationExtraArgs:
    """Adam as in optax, but if `good` is false, the update leaves the state as it is.

    The choice comes before the direction, not after the update: otherwise XLA for CPUs computes the moments twice, once
    within the update of the parameters, and copies the old moments beforehand.
    """

    def update(gradients, state, params=None, *, good=True):
        del params
        count, mu, nu = jax.tree.map(
            lambda new, old: jnp.where(good, new, old),
            (
                optax.safe_increment(state.count),
                optax.tree.update_moment(gradients, state.mu, beta1, 1),
                optax.tree.update_moment_per_elem_norm(gradients, state.nu, beta2, 2),
            ),
            (state.count, state.mu, state.nu),
        )
        first = optax.tree.bias_correction(mu, beta1, count)
        second = optax.tree.bias_correction(nu, beta2, count)
        directions = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), first, second)
        return directions, optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformationExtraArgs(optax.scale_by_adam().init, update)


def check_layer_settings(config: OptimizerConfig, encoder: EncoderConfig) -> None:
    """Refuse per-layer settings if the model has fewer layers, or if its layers share parameters."""
    if config.frozen_layers > encoder.num_hidden_layers:
        raise BertJaxError(
            f"optimizer.frozen_layers is {config.frozen_layers}, but the model has {encoder.num_hidden_layers} layers"
        )
    if encoder.layer_groups and (config.layer_decay < 1 or config.frozen_layers > 0):
        raise BertJaxError(
            f"{encoder.num_hidden_layers} layers share {encoder.layer_groups} groups of parameters, so layer_decay and "
            "frozen_layers cannot apply; set --config.optimizer.layer_decay=1 --config.optimizer.frozen_layers=-1"
        )


def scale_by_depth(
    frozen_layers: int, decay: float, rules: Rules, frozen: Rules
) -> optax.GradientTransformation:
    """Scale updates: 0 for frozen parameters; below the head, one more factor `decay` for each layer further down."""

    def update(updates, params):
        sizes = {name: leaf.shape[0] for name, leaf in params_by_name(updates).items()}

        def scaled(rule: ParameterRule, name: str, leaf):
            if frozen and match_rule(frozen, name):
                return jnp.zeros_like(leaf)
            if rule.depth == "above":
                return leaf
            encoder = name[: name.index("encoder/")]  # which of several encoders the parameter belongs to
            layers = next(
                size for other, size in sizes.items() if other.startswith(f"{encoder}encoder/layers/")
            )
            depth = np.zeros(1) if rule.depth == "embeddings" else 1 + np.arange(layers)
            factors = np.where(depth <= frozen_layers, 0, decay ** (layers + 1 - depth))
            return leaf * jnp.asarray(factors, leaf.dtype).reshape(-1, *[1] * (leaf.ndim - 1))

        return map_with_rules(updates, rules, scaled)

    return optax.stateless(update)


def scale_by_rate(rules: Rules) -> optax.GradientTransformation:
    """Scale the updates of parameters that have a learning rate of their own."""
    return optax.stateless(
        lambda updates, params: map_with_rules(
            updates, rules, lambda rule, name, leaf: leaf if rule.rate == 1 else rule.rate * leaf
        )
    )


def scale_by_trust_ratio(rules: Rules = PARAMETER_RULES) -> optax.GradientTransformation:
    """Scale as LAMB does: each tensor's update gets the tensor's own norm, except for biases and LayerNorm."""

    def scaled(rule: ParameterRule, update, param):
        return trust_ratio(rule.tensors, update, param) * update if rule.decays else update

    def update(updates, state, params):
        treated = map_with_rules(params, rules, lambda rule, name, leaf: rule)
        return jax.tree.map(scaled, treated, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def trust_ratio(tensors: tuple[int, ...], update, param):
    """|param| / |update| of each tensor, 1 if either is 0; `tensors` are the axes that number the stacked tensors."""
    within = tuple(axis for axis in range(param.ndim) if axis not in tensors)
    norms = [jnp.sqrt(jnp.sum(x.astype(jnp.float32) ** 2, within, keepdims=True)) for x in (param, update)]
    return jnp.where((norms[0] > 0) & (norms[1] > 0), norms[0] / jnp.where(norms[1] > 0, norms[1], 1), 1)


def learning_rate_factor(config: OptimizerConfig, steps: int, step):
    """The learning rate of a step, as a share of the peak: it rises during the warm-up, then follows the schedule to
    0 at `steps`. It is above 0 at step 0.

    >>> config = OptimizerConfig(warmup_steps=4)
    >>> [round(float(learning_rate_factor(config, 12, step)), 3) for step in (0, 3, 4, 8, 12)]
    [0.25, 1.0, 1.0, 0.5, 0.0]
    """
    step = jnp.asarray(step, jnp.float32)
    warmup = config.num_warmup_steps(steps)
    tail = max(config.decay_ratio * steps, 1)
    after = jnp.clip(SCHEDULES[config.schedule](steps - step, max(steps - warmup, 1), tail), 0, 1)
    return jnp.minimum((step + 1) / max(warmup, 1), after)


# Arguments: the number of steps left, of steps after the warm-up, and of steps in which a stable rate decays.
SCHEDULES = {
    "linear": lambda left, after, tail: left / after,
    "cosine": lambda left, after, tail: (1 - jnp.cos(jnp.pi * jnp.clip(left / after, 0, 1))) / 2,
    "warmup_stable_decay": lambda left, after, tail: left / tail,
}
