"""The parameters of a model as inference reads them, and as they are saved."""

import jax

from bert_jax.models.encoder import stack, unroll
from bert_jax.models.mesh import platform


def unrolled() -> bool:
    """Whether layers have parameters of their own: a CPU copies those of a scan, which for a short text takes longer
    than its products."""
    return platform() == "cpu"


def place(params: dict) -> dict:
    """Put parameters on the device, unrolled where that is faster."""
    if unrolled():
        params = params | {"encoder": unroll(params["encoder"])}
    return jax.device_put(params)


def as_saved(placed: dict) -> dict:
    """The opposite of `place`."""
    return placed | {"encoder": stack(placed["encoder"])} if unrolled() else placed


def round_kernels(params: dict, dtype: str) -> dict:
    """Round kernels as products do, once instead of in each call."""

    def rounded(path, leaf):
        return leaf.astype(dtype) if path[-1].key == "kernel" else leaf

    return jax.tree_util.tree_map_with_path(rounded, params)
