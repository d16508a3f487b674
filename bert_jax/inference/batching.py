"""Arrange texts of any lengths in few, full batches of few shapes.

Rows are sorted by length, so that a batch is padded to its own longest row, not to the longest of all.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.data.examples.row_packing import EncodedExample, collate_rows
from bert_jax.text.tokenizer import Encoding

CPU_TOKENS, ACCELERATOR_TOKENS = 1024, 16384  # as many as a CPU's caches hold, or as keep an accelerator busy


@dataclass(frozen=True)
class BatchShapes:
    """The shapes of batches that an engine computes. With `lengths`, row lengths and row counts are taken from short
    lists (rungs), so that the number of programs to compile is bounded for any texts."""

    tokens: int  # of a batch, approximately
    lengths: tuple[int, ...] = ()  # of rows, up to 512; above, their multiples of 512; (): any
    # A batch takes as long as this many tokens longer than its tokens. 0: a program that is not compiled yet takes much
    # longer, so that as few batches as possible are best.
    overhead: int = 0

    def padded_length(self, length: int, longest: int) -> int:
        """Return the length that a row of `length` tokens is padded to, at most `longest`."""
        if not self.lengths:
            return length
        rung = next((rung for rung in self.lengths if rung >= length), None) or -(-length // 512) * 512
        return min(rung, longest)

    def row_counts(self, length: int) -> Sequence[int]:
        """Return the allowed numbers of rows of this length: powers of two, and the most that the tokens allow.

        >>> BatchShapes(1024, (80,)).row_counts(80), BatchShapes(240).row_counts(80)
        ([1, 2, 4, 8, 12], range(1, 4))
        """
        most = max(1, self.tokens // length)
        if not self.lengths:
            return range(1, most + 1)
        return sorted({1 << n for n in range(most.bit_length())} | {most})


def tokens_per_batch() -> int:
    """Return the tokens of a batch on the device that this process computes on: JAX's, or else a CPU."""
    jax = sys.modules.get("jax")
    return CPU_TOKENS if jax is None or jax.default_backend() == "cpu" else ACCELERATOR_TOKENS


def make_batches(
    encodings: Sequence[Encoding],
    longest: int,
    pad: int,
    shapes: BatchShapes,
    beside: dict[str, np.ndarray] | None = None,
) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
    """Yield (indices of the encodings in the rows, batch); the rows after those are padding.

    `beside` holds further arrays of the batch, with a row for each encoding.
    """
    # The longest rows come first, so that memory use peaks in the first batch, not in the last.
    order = sorted(range(len(encodings)), key=lambda i: -len(encodings[i].input_ids))
    lengths = [shapes.padded_length(len(encodings[i].input_ids), longest) for i in order]
    for first, rows in split_rows(lengths, shapes):
        taken = order[first : first + rows]
        batch = pad_batch([encodings[i] for i in taken], pad, rows, lengths[first])
        for name, array in (beside or {}).items():
            batch[name] = np.zeros((rows, *array.shape[1:]), array.dtype)
            batch[name][: len(taken)] = array[taken]
        yield taken, batch


def split_rows(lengths: Sequence[int], shapes: BatchShapes) -> Iterator[tuple[int, int]]:
    """Yield the first row and the row count of each batch; the rows have falling lengths.

    >>> shapes = BatchShapes(1024, (80,))
    >>> list(split_rows([80, 80, 80], shapes)), list(split_rows([80, 80, 80], BatchShapes(1024, (80,), 16)))
    ([(0, 4)], [(0, 2), (2, 1)])
    """
    rows = fewest_batches(lengths, shapes) if not shapes.overhead else fastest_batches(lengths, shapes)
    first = 0
    while first < len(lengths):
        yield first, rows[first]
        first += rows[first]


def fewest_batches(lengths: Sequence[int], shapes: BatchShapes) -> list[int]:
    """Return the row count of a batch that begins with each of the rows, so that there are few batches."""
    allowed = {length: shapes.row_counts(length) for length in set(lengths)}
    left = zip(lengths, range(len(lengths), 0, -1), strict=True)
    return [next((n for n in allowed[length] if n >= count), allowed[length][-1]) for length, count in left]


def fastest_batches(lengths: Sequence[int], shapes: BatchShapes) -> list[int]:
    """Return the row count of a batch that begins with each of the rows, so that all batches take the least time."""
    count = len(lengths)
    costs, chosen = [0.0] * (count + 1), [0] * count  # of the rows from each one on
    allowed = {length: shapes.row_counts(length) for length in set(lengths)}
    for first in reversed(range(count)):
        costs[first] = math.inf
        for rows in allowed[lengths[first]]:
            cost = shapes.overhead + rows * lengths[first] + costs[min(first + rows, count)]
            if cost <= costs[first]:
                costs[first], chosen[first] = cost, rows
            if first + rows >= count:
                break
    return chosen


def pad_batch(
    encodings: Sequence[Encoding], pad: int, rows: int = 0, length: int = 0
) -> dict[str, np.ndarray]:
    """Return a batch of these rows, by default no more rows than these, and as long as the longest."""
    rows = rows or len(encodings)
    length = length or max(len(encoding.input_ids) for encoding in encodings)
    examples = [EncodedExample(encoding, n, {}) for n, encoding in enumerate(encodings)]
    return collate_rows(examples, [[n] if n < len(examples) else [] for n in range(rows)], length, 1, pad, {})


def split_texts(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a batch with one text in each row, if its rows hold texts that are read separately."""
    if "segment_ids" not in batch:
        return batch
    starts, segments = batch["cls_positions"], batch["segment_ids"]
    texts = 1 + np.arange(starts.shape[1])
    lengths = (segments[:, None] == texts[:, None]).sum(-1)  # [B, P]
    offsets = np.arange(max(1, lengths.max()))
    mask = offsets < lengths[..., None]  # [B, P, L]
    places = np.where(mask, starts[..., None] + offsets, 0)
    rows = {}
    for name in ("input_ids", "token_type_ids"):
        taken = np.take_along_axis(batch[name][:, None], places, axis=-1)
        rows[name] = np.where(mask, taken, 0).reshape(-1, len(offsets))
    return rows | {"attention_mask": mask.astype(np.int64).reshape(-1, len(offsets))}
