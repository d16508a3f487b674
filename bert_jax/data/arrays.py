"""NumPy files written piece by piece, for arrays longer than memory."""

import os
from pathlib import Path

import numpy as np

HEADER = 256  # bytes; does not depend on the number of rows, so it can be written last


class ArrayWriter:
    """A .npy file that grows row by row; it has its name once it is whole.

    with ArrayWriter(path, np.uint16) as tokens:
        tokens.append(ids)
    """

    def __init__(self, path: Path, dtype):
        self.path, self.dtype, self.rows = path, np.dtype(dtype), 0
        self.partial = path.with_name(f"{path.name}.{os.getpid()}.partial")

    def __enter__(self) -> "ArrayWriter":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.partial, "wb")
        self._header()
        return self

    def append(self, rows: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(rows, self.dtype).data.cast("B") if len(rows) else b"")
        self.rows += len(rows)

    def __exit__(self, kind, *_) -> None:
        with self.file:
            if kind is None:
                self.file.seek(0)
                self._header()
                self.file.flush()
                os.fsync(self.file.fileno())
        if kind is None:
            os.replace(self.partial, self.path)
        else:
            self.partial.unlink(missing_ok=True)

    def _header(self) -> None:
        shape = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.rows,),
        }
        text = repr(shape).encode().ljust(HEADER - 11) + b"\n"
        self.file.write(b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text)
