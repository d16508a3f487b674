"""Texts of any lengths as few, full batches of few shapes.

Rows are sorted by length, so that a batch pads to its own longest row and not to the longest of all. Lengths and
numbers of rows come from short ladders: whatever the texts, the number of programs to compile is bounded.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.text.tokenizer import Encoding

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
TOKENS = 4096  # in one batch, about


def padded_length(length: int, longest: int) -> int:
    """The rung that `length` is padded to.

    >>> padded_length(20, 512), padded_length(130, 512), padded_length(500, 500), padded_length(700, 2048)
    (32, 192, 500, 1024)
    """
    rung = next((rung for rung in LENGTHS if rung >= length), None) or -(-length // 512) * 512
    return min(rung, longest)


def row_rungs(length: int) -> list[int]:
    """How many rows a batch of this length may have: powers of two.

    >>> row_rungs(512)
    [1, 2, 4, 8]
    """
    most = max(1, TOKENS // length)
    return [1 << n for n in range(most.bit_length())]


def batches(
    encodings: Sequence[Encoding], longest: int, pad: int
) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
    """(which encodings stand in the rows, batch); rows beyond those are padding."""
    order = sorted(range(len(encodings)), key=lambda i: len(encodings[i].ids))
    while order:
        length = padded_length(len(encodings[order[-1]].ids), longest)
        # The longest first: memory peaks at the first batch, not the last.
        fitting = [rows for rows in row_rungs(length) if rows <= len(order)]
        rows = fitting[-1]
        taken, order = order[-rows:], order[:-rows]
        yield taken, as_batch([encodings[i] for i in taken], length, pad)


def as_batch(encodings: Sequence[Encoding], length: int, pad: int) -> dict[str, np.ndarray]:
    batch = {name: np.zeros((len(encodings), length), np.int32) for name in ("tokens", "segments", "mask")}
    batch["tokens"][:] = pad
    for row, encoding in enumerate(encodings):
        n = len(encoding.ids)
        batch["tokens"][row, :n] = encoding.ids
        batch["segments"][row, :n] = encoding.segments
        batch["mask"][row, :n] = 1
    return batch
