"""What a model computes."""

import jax


def compute_outputs(model, batch: dict, params=None) -> dict:
    """The outputs of a model or layout, by one program, in NumPy: JAX would compile each operation by itself, and each
    slice of a result."""
    params = model.params if params is None else params
    run = jax.jit(lambda params, batch: model.module.apply({"params": params}, batch))
    return jax.device_get(run(params, batch))
