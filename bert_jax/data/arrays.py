"""NumPy files written piece by piece, for arrays longer than memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bert_jax.output import replacing

HEADER = 256  # bytes; does not depend on the number of rows, so it can be written last


@contextmanager
def growing_array(path: Path, dtype, shared: bool = False) -> "Iterator[GrowingArray]":
    """A .npy file that grows; it has its name once it is whole. `shared` as of `replacing`.

    with growing_array(path, np.uint16) as tokens:
        tokens.append(ids)
    """
    with replacing(path, shared) as partial, open(partial, "wb") as file:
        array = GrowingArray(file, np.dtype(dtype))
        array.write_header()
        yield array
        file.seek(0)
        array.write_header()


class GrowingArray:
    """An array [N] of pieces [n], or [N, D] of pieces [n, D]."""

    def __init__(self, file: BinaryIO, dtype: np.dtype):
        self.file, self.dtype, self.rows = file, dtype, 0
        self.shape: tuple[int, ...] = ()  # of a row

    def append(self, rows: np.ndarray) -> None:
        self.file.write(np.asarray(rows, self.dtype).tobytes())
        self.rows += len(rows)
        self.shape = np.shape(rows)[1:]

    def write_header(self) -> None:
        kind, shape = np.lib.format.dtype_to_descr(self.dtype), (self.rows, *self.shape)
        fields = {"descr": kind, "fortran_order": False, "shape": shape}
        text = repr(fields).encode().ljust(HEADER - 11) + b"\n"
        self.file.write(b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text)
