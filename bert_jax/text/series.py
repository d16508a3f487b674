"""Arrays, and columns of data frames, as lists of plain Python values."""

from typing import Any

import numpy as np

from bert_jax.errors import BertJaxError

METHODS = ("to_pylist", "to_list", "tolist")  # of pyarrow, of pandas and polars, of arrays


def as_list(values: Any) -> Any:
    """The list of the values of an array or of a data frame's column; anything else as it is.

    >>> as_list(np.array(["a", "b"]))
    ['a', 'b']
    """
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise BertJaxError(f"expected a list, got an array of {values.ndim} dimensions")
    if hasattr(values, "columns"):
        raise BertJaxError(f"expected a list, got a {type(values).__name__}; give one of its columns")
    for name in METHODS:
        if hasattr(values, name):
            return list(map(plain, getattr(values, name)()))
    return list(map(plain, values)) if isinstance(values, list) else values


def plain(value):
    """Of a cell that holds an array, such as the words of a parquet file, the list."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
