"""Vectors on disk: NumPy and Parquet files, which are written as the vectors come and read as one array.

Vectors take fewer bytes as in `quantize_embeddings` of sentence-transformers: one byte per number, in equal steps
between the minimum and the maximum of its dimension, or one bit for its sign.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import atomic_file
from bert_jax.data.npy_writer import npy_writer

EMBEDDING = "embedding"  # the column of vectors of a Parquet file
BATCH = 4096  # rows of a Parquet file that are decoded at once
TYPES = {None: "float32", "int8": "int8", "binary": "uint8"}  # dtypes of the stored numbers
STEPS = 255  # between the minimum and the maximum of a range


class Quantizer:
    """Quantize a stream of vectors; kind None leaves them unchanged.

    If int8 is given no ranges, it takes them from the first parts, which hold at least `calibrating` vectors together
    if the stream has that many.
    """

    def __init__(self, quantization: str | None, calibrating: int, ranges: np.ndarray | None = None):
        self.quantization, self.calibrating, self.ranges = quantization, calibrating, ranges
        self.clipped = 0  # the number of values outside their range

    def __call__(self, parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        if self.quantization == "int8" and self.ranges is None:
            first: list[np.ndarray] = []
            while sum(map(len, first)) < self.calibrating and (part := next(parts, None)) is not None:
                first.append(part)
            self.ranges = ranges_of(first)
            parts = chain(first, parts)
        return map(self.quantized, parts)

    def quantized(self, vectors: np.ndarray) -> np.ndarray:
        if self.quantization == "binary":
            return to_bits(vectors)
        if self.ranges is None:
            return vectors
        self.clipped += int(((vectors < self.ranges[0]) | (vectors > self.ranges[1])).sum())
        return to_bytes(vectors, self.ranges)


def ranges_of(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the minimum and the maximum of each dimension, [2, D]."""
    if sum(map(len, parts)) < 2:
        raise BertJaxError("int8 needs the range of each dimension over at least two texts; give more texts")
    return np.stack([np.min([part.min(0) for part in parts], 0), np.max([part.max(0) for part in parts], 0)])


def to_bytes(vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """
    >>> to_bytes(np.float32([[0, 5], [127.6, 5], [300, 7]]), np.float32([[0, 5], [255, 5]])).tolist()
    [[-128, -128], [-1, -128], [127, -126]]
    """
    step = (ranges[1] - ranges[0]) / STEPS
    step = np.where(step == 0, 1, step)
    return (np.clip(np.floor((vectors - ranges[0]) / step), 0, STEPS) - 128).astype(np.int8)


def from_bytes(rows: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return the middle of the step that each number was in."""
    step = (ranges[1] - ranges[0]) / STEPS
    return ranges[0] + (rows.astype(np.float32) + 128.5) * step


def to_bits(vectors: np.ndarray) -> np.ndarray:
    """Pack eight dimensions into a byte, the first into its highest bit; a bit is 1 if the number is positive.

    >>> to_bits(np.float32([[0.5, -1, 0, 2, 1, 1, 1, 1, 3]])).tolist()
    [[159, 128]]
    """
    return np.packbits(vectors > 0, axis=-1)


def from_bits(rows: np.ndarray, dimensions: int) -> np.ndarray:
    """Return 1 or -1 for each dimension."""
    return np.unpackbits(rows, axis=-1, count=dimensions).astype(np.float32) * 2 - 1


@contextmanager
def vector_writer(path: Path, dtype: str, shared: bool = False) -> Iterator[Callable[..., None]]:
    """Yield a function that appends vectors [N, D] to a new file. A Parquet file also has other columns of the same
    rows, and may have no vectors (None). For `shared` see `atomic_file`."""
    if path.suffix.lower() != ".parquet":
        with npy_writer(path, dtype, shared) as file:
            yield lambda vectors, **columns: file.append(vectors)
        return
    import pyarrow as pa
    from pyarrow import parquet

    writer = None

    def append(vectors: np.ndarray | None, **columns: pa.Array | np.ndarray | Sequence) -> None:
        nonlocal writer
        if vectors is not None:
            numbers = vectors.astype(dtype, copy=False).ravel()
            columns[EMBEDDING] = pa.FixedSizeListArray.from_arrays(numbers, vectors.shape[1])
        table = pa.table(columns)
        writer = writer or parquet.ParquetWriter(new, table.schema)
        writer.write_table(table)

    with atomic_file(path, shared) as new:
        try:
            yield append
        finally:
            if writer:
                writer.close()


def read_vectors(path: Path) -> np.ndarray:
    """Return the vectors [N, D] of a file. Those of a NumPy file are mapped: read from disk only when used."""
    if path.suffix.lower() != ".parquet":
        return np.load(path, mmap_mode="r")
    from pyarrow import parquet

    # Otherwise pyarrow reads a file whole, several times the memory of its vectors.
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        size = file.schema_arrow.field(EMBEDDING).type.list_size
        vectors, first = np.empty((file.metadata.num_rows, size), np.float32), 0
        for batch in file.iter_batches(BATCH, columns=[EMBEDDING]):
            vectors[first : first + len(batch)] = batch.column(0).flatten().to_numpy().reshape(-1, size)
            first += len(batch)
    return vectors


def gather_rows(
    positions: np.ndarray,
    starts: np.ndarray,
    table: Callable[[int], Any],
    dtype: np.typing.DTypeLike | None = None,
) -> np.ndarray:
    """Return the rows at these indices of the concatenation of tables, which begin at `starts`; `table(i)` returns all
    rows of table `i`, as an array or what reads the selected rows. The default of `dtype` is that of the first."""
    numbers = np.searchsorted(starts, positions, side="right") - 1
    first = int(numbers.flat[0]) if numbers.size else 0
    rows = np.empty(
        (*positions.shape, *table(first).shape[1:]), table(first).dtype if dtype is None else dtype
    )
    for number in np.unique(numbers):
        selected = numbers == number
        rows[selected] = table(number)[positions[selected] - starts[number]]
    return rows
