"""Convert the parameters of a model between the form that inference uses and the form that is saved."""

import jax

from bert_jax.models.encoder import stack_layers, unroll_layers
from bert_jax.models.mesh import platform


def uses_unrolled_layers() -> bool:
    """Return whether each layer has its own arrays of parameters, instead of one stacked array for a scan.

    In a scan a CPU copies the parameters, which for a short text takes longer than the matrix products.
    """
    return platform() == "cpu"


def place_on_device(params: dict) -> dict:
    """Put parameters on the device, unrolled if that is faster."""
    if uses_unrolled_layers():
        params = params | {"encoder": unroll_layers(params["encoder"])}
    return jax.device_put(params)


def restack_layers(placed: dict) -> dict:
    """Undo `place_on_device`."""
    return placed | {"encoder": stack_layers(placed["encoder"])} if uses_unrolled_layers() else placed


def round_kernels(params: dict, dtype: str) -> dict:
    """Cast kernels to the dtype of the matrix products, once instead of in each call."""

    def rounded(path, leaf):
        return leaf.astype(dtype) if path[-1].key == "kernel" else leaf

    return jax.tree_util.tree_map_with_path(rounded, params)
