"""Check that the weights of a model are floats and finite, when they are read, computed or saved."""

from collections.abc import Mapping

import numpy as np

from bert_jax.core.errors import BertJaxError, NonFiniteError

FLOATS = ("float32", "float16", "bfloat16", "float64")


def is_finite(array: np.ndarray) -> bool:
    """Whether every number is finite. Minimum and maximum show it without another array of the same size."""
    return array.size == 0 or bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def read_weight(tensors: Mapping[str, np.ndarray], name: str, where) -> np.ndarray:
    """Read a published tensor as float32; refuse other types than floats, and values that are not finite."""
    array = tensors[name]
    if array.dtype.name not in FLOATS:
        raise BertJaxError(
            f"{where}: {name} has the type {array.dtype.name}, which is not floating-point; quantized weights are "
            "not supported, so fetch the model in float32, float16 or bfloat16"
        )
    with np.errstate(over="ignore"):
        array = np.asarray(array, np.float32)
    if not is_finite(array):
        raise BertJaxError(
            f"{where}: {name} has numbers that are not finite; copy the file again, or train the model again"
        )
    return array


def check_weights(tensors: Mapping[str, np.ndarray]) -> None:
    """Refuse to save weights that are not finite."""
    if broken := [name for name, array in tensors.items() if not is_finite(array)]:
        raise NonFiniteError(
            f"the model is not written: {len(broken)} of its {len(tensors)} tensors, {broken[0]} the first, have "
            "numbers that are not finite; train again with a lower --config.optimizer.learning_rate"
        )
