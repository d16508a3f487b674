"""Arrange texts of any lengths in few, full batches of few shapes.

Rows are sorted by length, so that a batch is padded to its own longest row, not to the longest of all. On an
accelerator several texts share a row.
"""

import math
import sys
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

import numpy as np

from bert_jax.data.examples.row_packing import EncodedWindow, Target, collate_rows, window_starts
from bert_jax.text.encoding import Encoding

CPU_TOKENS, ACCELERATOR_TOKENS = 1024, 16384  # as many as a CPU's caches hold, or as keep an accelerator busy
CPU_LENGTHS = (*range(8, 64, 4), *range(64, 128, 8), *range(128, 256, 16), *range(256, 513, 32))  # of rows
FIXED_SHARE = (
    8  # a batch whose rows are fixed has this share of the usual tokens, for it may hold a single text
)
SHORTEST = 8  # tokens: a row has room for one text for each so many of its own


@dataclass(frozen=True)
class BatchShapes:
    """The shapes of batches that an engine computes. With `lengths`, row lengths and row counts are taken from short
    lists (rungs), so that the number of programs to compile is bounded for any texts."""

    tokens: int  # of a batch, approximately
    lengths: tuple[int, ...] = ()  # of rows, up to 512; above, their multiples of 512; (): any
    # A batch takes as long as this many tokens longer than its tokens. 0: a program that is not compiled yet takes much
    # longer, so that as few batches as possible are best.
    overhead: int = 0
    # Texts share rows of at most so many tokens, or as many as one of them needs. 0: each text has its own row.
    shared: int = 0
    devices: int = 1  # each computes as many rows of a batch
    row_step: int = 1  # row counts are every power of two, or every second one
    fixed: int = 0  # the tokens of a batch, if its rows of a length have one count; 0: the count varies

    def batch_invariant(self, one_row: bool = False) -> "BatchShapes":
        """Return shapes with which the outputs for a text do not depend on the other texts, to the bit."""
        shapes = self.with_one_count()
        return replace(shapes, shared=0, fixed=1 if one_row else shapes.fixed)

    def with_one_count(self) -> "BatchShapes":
        """Return shapes with one row count for each length, which suffices for any texts."""
        return replace(self, fixed=self.tokens // FIXED_SHARE)

    def padded_length(self, length: int, longest: int) -> int:
        """Return the length that a row of `length` tokens is padded to, at most `longest` or `shared`."""
        if not self.lengths:
            return length
        rung = next((rung for rung in self.lengths if rung >= length), None) or -(-length // 512) * 512
        return min(rung, max(longest, self.shared))

    def row_lengths(self, lengths: Iterable[int], longest: int, texts: int = 2) -> list[int]:
        """Return the possible lengths of rows for up to `texts` texts of these `lengths`.

        >>> BatchShapes(1024, (16, 64, 256), shared=256).row_lengths([20, 300], longest=512)
        [64, 256, 512]
        """
        lengths = [*lengths]
        if self.shared and texts > 1 and min(lengths) <= self.shared // 2:
            together = texts * max(SHORTEST, *lengths)
            lengths += range(min(lengths), min(self.shared, together) + 1)
        return sorted({self.padded_length(length, longest) for length in lengths})

    def most_texts(self, length: int) -> int:
        """Return how many texts a row of this length has room for."""
        return max(2, length // SHORTEST) if self.shared else 1

    def row_counts(self, length: int) -> Sequence[int]:
        """Return the allowed numbers of rows of this length: powers of two, and the most that the tokens allow, each
        for every device. A short row that texts share is always the only one.

        >>> BatchShapes(1024, (80,)).row_counts(80), BatchShapes(240).row_counts(80)
        ([1, 2, 4, 8, 12], range(1, 4))
        """
        count = self.devices
        most = max(1, (self.fixed or self.tokens) // (count * length)) if length > self.shared // 2 else 1
        powers = [count << n for n in range(0, most.bit_length(), self.row_step)]
        if self.fixed:
            # A power of two: a product with few columns computes the last of other numbers of rows differently.
            return powers[-1:]
        if not self.lengths:
            return range(count, count * most + 1, count)
        return sorted({*powers, count * most})


def tokens_per_batch() -> int:
    """Return the tokens of a batch on the devices that this process computes on: JAX's, or else a CPU."""
    jax = sys.modules.get("jax")
    if jax is None:
        return CPU_TOKENS
    return jax.local_device_count() * (CPU_TOKENS if jax.default_backend() == "cpu" else ACCELERATOR_TOKENS)


def make_batches(
    encodings: Sequence[Encoding],
    longest: int,
    pad: int,
    shapes: BatchShapes,
    extra_inputs: dict[str, np.ndarray] | None = None,
) -> Iterator[tuple[list[list[int]], dict[str, np.ndarray]]]:
    """Yield (the indices of the encodings in each row, batch); the rows after those are padding.

    `extra_inputs` holds further arrays of the batch, with a row for each encoding.
    """
    arranged = arrange_rows([len(encoding.input_ids) for encoding in encodings], longest, shapes)
    collate = row_collator(encodings, pad, shapes, extra_inputs)
    # Where rows are fixed, the length of a batch is that of each of its rows, too.
    of_length = groupby(arranged, key=itemgetter(0))
    for group in [list(rows) for _, rows in of_length] if shapes.fixed else [arranged]:
        for first, count in split_rows([length for length, _ in group], shapes):
            rows = [row for _, row in group[first : first + count]]
            yield rows, collate(rows + [[]] * (count - len(rows)), group[first][0])


def arrange_rows(lengths: Sequence[int], longest: int, shapes: BatchShapes) -> list[tuple[int, list[int]]]:
    """Return (length, indices of the texts in it) of each row for texts of these lengths.

    The longest rows come first, so that memory use peaks in the first batch, not in the last. Of rows that texts share,
    those of a batch are as long as several of its longest texts. Each begins with the longest text that is left, and
    the longest that fit follow.

    >>> arrange_rows([30, 5, 200, 90, 20], 512, BatchShapes(256, (64, 128, 192, 256), shared=128))
    [(256, [2, 0, 4, 1]), (128, [3])]
    """
    left = sorted((length, -i) for i, length in enumerate(lengths))
    if not shapes.shared:
        return [(shapes.padded_length(length, longest), [-i]) for length, i in reversed(left)]
    total = sum(max(length, SHORTEST) for length in lengths)
    rows: list[tuple[int, list[int]]] = []
    length = free = 0  # of the rows of a batch, and how many more it holds
    while left:
        if not free:
            size = max(left[-1][0], SHORTEST)
            length = shapes.padded_length(min(total, size * max(1, shapes.shared // size)), longest)
            free = shapes.row_counts(length)[-1]
        free -= 1
        row: list[int] = []
        room = length
        while len(row) < shapes.most_texts(length) and (position := bisect(left, (room, 0))):
            size, i = left.pop(position - 1)
            row.append(-i)
            room -= size
        rows.append((length, row))
    return sorted(rows, key=lambda row: -row[0])


def row_collator(
    encodings: Sequence[Encoding],
    pad: int,
    shapes: BatchShapes,
    extra_inputs: dict[str, np.ndarray] | None = None,
) -> Callable[[list[list[int]], int], dict[str, np.ndarray]]:
    """Return a function of rows, which are lists of indices, and of their length that returns a batch. If texts share
    rows, it holds the `lengths` of texts [B, P]."""
    extra_inputs = dict(extra_inputs or {})
    if shapes.shared:
        extra_inputs["lengths"] = np.array([len(encoding.input_ids) for encoding in encodings], np.int32)
    targets = {name: Target(array.dtype.name, array.shape[1:]) for name, array in extra_inputs.items()}
    encoded_windows = [
        EncodedWindow(encoding, n, {name: array[n] for name, array in extra_inputs.items()})
        for n, encoding in enumerate(encodings)
    ]
    return lambda rows, length: collate_rows(
        encoded_windows, rows, length, shapes.most_texts(length), pad, targets
    )


def split_outputs(
    values: np.ndarray, rows: list[list[int]], batch: dict[str, np.ndarray]
) -> Iterator[np.ndarray]:
    """Yield the part of a batch's outputs for each encoding in its rows: [B, ...] or, if texts share rows, [B, P, ...]
    or [B, L, ...]."""
    if "lengths" not in batch:
        yield from values[: len(rows)]
        return
    starts, lengths = window_starts(batch), batch["lengths"]
    each_token = values.shape[1] != lengths.shape[1]
    for row, own in enumerate(rows):
        for n in range(len(own)):
            start = starts[row, n]
            yield values[row, start : start + lengths[row, n]] if each_token else values[row, n]


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


def pad_batch(encodings: Sequence[Encoding], pad: int) -> dict[str, np.ndarray]:
    """Return a batch of these rows, as long as the longest."""
    longest = max(len(encoding.input_ids) for encoding in encodings)
    return row_collator(encodings, pad, BatchShapes(1))([[n] for n in range(len(encodings))], longest)


def split_texts(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a batch with one text in each row, if its rows hold texts that are read separately."""
    if "segment_ids" not in batch:
        return batch
    starts, segments = batch["cls_positions"], batch["segment_ids"]
    texts = 1 + np.arange(starts.shape[1])
    lengths = (segments[:, None] == texts[:, None]).sum(-1)  # [B, P]
    offsets = np.arange(max(1, lengths.max()))
    mask = offsets < lengths[..., None]  # [B, P, L]
    positions = np.where(mask, starts[..., None] + offsets, 0)
    rows = {}
    for name in ("input_ids", "token_type_ids"):
        taken = np.take_along_axis(batch[name][:, None], positions, axis=-1)
        rows[name] = np.where(mask, taken, 0).reshape(-1, len(offsets))
    return rows | {"attention_mask": mask.astype(np.int64).reshape(-1, len(offsets))}
