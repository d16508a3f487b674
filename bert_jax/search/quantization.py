"""Store vectors in fewer bytes, as `quantize_embeddings` of sentence-transformers does: one byte per number, in equal
steps between the minimum and the maximum of its dimension, or one bit for its sign."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from bert_jax.core.errors import BertJaxError

TYPES = {None: "float32", "int8": "int8", "binary": "uint8"}  # dtypes of the stored numbers
STEPS = 255  # between the minimum and the maximum of a range


class Quantizer:
    """Quantize a stream of vectors; kind None leaves them unchanged.

    If int8 is given no ranges, it takes them from the first parts, which hold at least `calibrating` vectors together
    if the stream has that many.
    """

    def __init__(self, kind: str | None, calibrating: int, ranges: np.ndarray | None = None):
        self.kind, self.calibrating, self.ranges = kind, calibrating, ranges
        self.clipped = 0  # the number of values outside their range

    def __call__(self, parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        if self.kind == "int8" and self.ranges is None:
            first: list[np.ndarray] = []
            while sum(map(len, first)) < self.calibrating and (part := next(parts, None)) is not None:
                first.append(part)
            self.ranges = ranges_of(first)
            parts = chain(first, parts)
        return map(self.quantized, parts)

    def quantized(self, vectors: np.ndarray) -> np.ndarray:
        if self.kind == "binary":
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
