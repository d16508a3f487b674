"""Convert arrays and columns of data frames to lists of plain Python values."""

from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.typed_json import type_name

METHODS = ("to_pylist", "to_list", "tolist")  # of pyarrow, of pandas and polars, of arrays


def to_plain_list(values: Any) -> Any:
    """Convert an array, a data frame's column or a list to a list of plain values; return anything else as it is.

    >>> to_plain_list(np.array(["a", "b"]))
    ['a', 'b']
    """
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise BertJaxError(f"expected a list, got an array of {values.ndim} dimensions")
    if hasattr(values, "columns"):
        raise BertJaxError(f"expected a list, got {type_name(values)}; give one of its columns")
    for name in METHODS:
        if hasattr(values, name):
            return list(map(to_plain_value, getattr(values, name)()))
    return list(map(to_plain_value, values)) if isinstance(values, list) else values


def to_plain_value(value):
    """Convert a cell that holds an array, such as words in a parquet file, to a list; convert NumPy scalars, too."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
