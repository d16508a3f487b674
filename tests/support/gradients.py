"""Gradients beside gradients."""

import jax
import numpy as np


def assert_gradients_equal(ours, expected, tolerance: float = 1e-5) -> None:
    """Within a share of the largest number in any of them: small ones are sums that cancel. In NumPy, as JAX would
    compile a program for each shape."""
    ours, expected = jax.device_get((ours, expected))
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a / scale, b / scale, atol=tolerance), ours, expected
    )


def assert_loss_and_gradients_close(ours, reference) -> None:
    """(value of a loss, gradients by name): within 1e-5, and 1e-4 of the largest gradient."""
    (value, gradients), (expected, theirs) = jax.device_get(ours), reference
    assert abs(float(value) - expected) <= 1e-5 * abs(expected)
    assert set(gradients) == set(theirs)
    largest = max(np.abs(gradient).max() for gradient in theirs.values())
    assert largest > 1e-4
    for name, gradient in theirs.items():
        assert np.abs(gradients[name] - gradient).max() <= 1e-4 * largest, name
