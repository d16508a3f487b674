"""Gradients beside gradients."""

import jax
import jax.numpy as jnp
import numpy as np


def assert_gradients_equal(ours, expected, tolerance: float = 1e-5) -> None:
    """Within a share of the largest number in any of them: small ones are sums that cancel."""
    scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a / scale, b / scale, atol=tolerance), ours, expected
    )
