"""The learning rate of each step."""

import jax.numpy as jnp

from bert_jax.training.run_config import OptimizerConfig


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
