import os

import pytest

# Before JAX is imported: tests run on the CPU, also where libtpu is installed and there is no TPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def quick_to_compile():
    """Programs that run a few steps need no optimization."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
