"""NumPy files that are written piece by piece, for arrays larger than memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bert_jax.core.output import atomic_file

BLOCK = 1 << 20  # zeros written at once
HEADER = 256  # bytes; the size does not depend on the number of rows, so the header can be written again at the end


@contextmanager
def npy_writer(path: Path, dtype, shared: bool = False) -> "Iterator[NpyWriter]":
    """Open a .npy file that grows. It appears under its name when it is complete. For `shared` see `atomic_file`.

    with npy_writer(path, np.uint16) as tokens:
        tokens.append(ids)
    """
    with atomic_file(path, shared) as partial, open(partial, "wb") as file:
        array = NpyWriter(file, np.dtype(dtype))
        array.write_header()
        yield array
        file.seek(0)
        array.write_header()


class NpyWriter:
    """An array [N] written in pieces [n], or an array [N, D] written in pieces [n, D]."""

    def __init__(self, file: BinaryIO, dtype: np.dtype):
        self.file, self.dtype, self.rows = file, dtype, 0
        self.shape: tuple[int, ...] = ()  # of a row

    def append(self, rows: np.ndarray) -> None:
        self.file.write(np.asarray(rows, self.dtype).tobytes())
        self.rows += len(rows)
        self.shape = np.shape(rows)[1:]

    def map_zeros(self, count: int) -> np.memmap:
        """Append zeros, and map them, to be filled in any order. They are written first, because a process that fills
        mapped pages is killed if the disk is full."""
        start = self.file.tell()
        for first in range(0, count, BLOCK):
            self.append(np.zeros(min(BLOCK, count - first), self.dtype))
        self.file.flush()
        return np.memmap(self.file.name, self.dtype, "r+", start, (count,))

    def write_header(self) -> None:
        descr, shape = np.lib.format.dtype_to_descr(self.dtype), (self.rows, *self.shape)
        fields = {"descr": descr, "fortran_order": False, "shape": shape}
        text = repr(fields).encode().ljust(HEADER - 11) + b"\n"
        self.file.write(b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text)
