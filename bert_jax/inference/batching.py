"""Arrange texts of any lengths in few, full batches of few shapes.

Rows are sorted by length, so that a batch is padded to its own longest row, not to the longest of all. Row lengths and
row counts are taken from short lists of allowed sizes (rungs), so the number of programs to compile is bounded for any
texts.
"""

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from bert_jax.data.examples.row_packing import EncodedExample, collate_rows
from bert_jax.text.tokenizer import Encoding

# A CPU pays for every token of padding; an accelerator compiles each program for seconds.
LENGTHS = {"cpu": (*range(8, 64, 4), *range(64, 128, 8), *range(128, 256, 16), *range(256, 513, 32))}
ACCELERATOR_LENGTHS = (*range(16, 128, 16), *range(128, 256, 32), *range(256, 513, 64))
# Approximate tokens of a batch: as many as a CPU's caches hold, or as many as keep an accelerator busy.
TOKENS = {"cpu": 1024}
ACCELERATOR_TOKENS = 16384


def allowed_lengths() -> tuple[int, ...]:
    return LENGTHS.get(jax.default_backend(), ACCELERATOR_LENGTHS)


def tokens_per_batch() -> int:
    return TOKENS.get(jax.default_backend(), ACCELERATOR_TOKENS)


def padded_length(length: int, longest: int) -> int:
    """Return the length that a row of `length` tokens is padded to, at most `longest`.

    >>> lengths = (20, 512), (130, 512), (500, 500), (700, 2048)
    >>> [padded_length(length, longest) for length, longest in lengths]  # on a CPU
    [20, 144, 500, 1024]
    """
    rung = next((rung for rung in allowed_lengths() if rung >= length), None) or -(-length // 512) * 512
    return min(rung, longest)


def allowed_row_counts(length: int, tokens: int) -> list[int]:
    """Return the allowed numbers of rows of this length: powers of two, and the most that `tokens` allow.

    >>> allowed_row_counts(80, 1024)
    [1, 2, 4, 8, 12]
    """
    most = max(1, tokens // length)
    return sorted({1 << n for n in range(most.bit_length())} | {most})


def make_batches(
    encodings: Sequence[Encoding], longest: int, pad: int, beside: dict[str, np.ndarray] | None = None
) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
    """Yield (indices of the encodings in the rows, batch); the rows after those are padding.

    `beside` holds further arrays of the batch, with a row for each encoding.
    """
    order = sorted(range(len(encodings)), key=lambda i: len(encodings[i].input_ids))
    tokens = tokens_per_batch()
    while order:
        length = padded_length(len(encodings[order[-1]].input_ids), longest)
        rungs = allowed_row_counts(length, tokens)
        # The longest rows come first, so that memory use peaks in the first batch, not in the last.
        rows = next((rows for rows in rungs if rows >= len(order)), rungs[-1])
        taken, order = order[-rows:], order[:-rows]
        batch = pad_batch([encodings[i] for i in taken], rows, length, pad)
        for name, array in (beside or {}).items():
            batch[name] = np.zeros((rows, *array.shape[1:]), array.dtype)
            batch[name][: len(taken)] = array[taken]
        yield taken, batch


def pad_batch(encodings: Sequence[Encoding], rows: int, length: int, pad: int) -> dict[str, np.ndarray]:
    pieces = [EncodedExample(encoding, n, {}) for n, encoding in enumerate(encodings)]
    return collate_rows(pieces, [[n] if n < len(pieces) else [] for n in range(rows)], length, 1, pad, {})
