"""Map the arrays of a segment: their files are read only where they are used; another type or shape is refused."""

from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError

REBUILD_REMEDY = "copy the index again, or build it again"


def map_array(path: Path, dtype: np.typing.DTypeLike, *shape: int | None) -> np.ndarray:
    """Map the array in a file. Raise if it has another type or shape; None stands for any length."""
    try:
        # Slicing an array is faster than slicing a memmap.
        array = np.lib.format.open_memmap(path, mode="r").view(np.ndarray)
    except OSError:
        raise
    except Exception as error:  # a damaged header raises errors of many types
        raise damage_error(path) from error
    has_shape = array.ndim == len(shape) and all(
        expected in (None, size) for size, expected in zip(array.shape, shape, strict=True)
    )
    if not has_shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise damage_error(path)
    return array


def damage_error(path: Path) -> BertJaxError:
    return BertJaxError(f"{path} is damaged; {REBUILD_REMEDY}")


def is_ascending(numbers: np.ndarray, least: int, most: int) -> bool:
    """Whether numbers between two bounds stand in ascending order; equal ones may follow each other.

    >>> is_ascending(np.array([0, 2, 2]), 0, 2), is_ascending(np.array([2, 0]), 0, 2), is_ascending(np.array([3]), 0, 2)
    (True, False, False)
    """
    return not len(numbers) or bool(
        least <= numbers[0] and numbers[-1] <= most and (numbers[1:] >= numbers[:-1]).all()
    )
