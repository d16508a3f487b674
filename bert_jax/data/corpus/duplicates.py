"""Find documents that are duplicates of earlier ones, and count duplicate lines, by their hashes.

The hashes are compared in slices that fit into memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

SLICE = 1 << 22  # hashes compared at a time
SAMPLE = 1 << 25  # the most lines compared; if there are more, a sample of the hashes stands for all


def stored(chunks: Sequence[Path], name: str) -> Iterator[np.ndarray]:
    for path in chunks:
        with np.load(path) as chunk:
            yield chunk[name]


def first_seen(chunks: Sequence[Path], name: str) -> np.ndarray:
    """Return, for each row of 128 bits, whether it is the first one with its value."""
    total = sum(len(rows) for rows in stored(chunks, name))
    first = np.zeros(total, bool)
    slices = -(-total // SLICE)
    for number in range(slices):
        parts, places, offset = [], [], 0
        for rows in stored(chunks, name):
            here = np.flatnonzero(rows[:, 0] % np.uint64(slices) == number)
            parts.append(rows[here])
            places.append(here + offset)
            offset += len(rows)
        rows, where = np.concatenate(parts), np.concatenate(places)
        order = np.lexsort((where, rows[:, 1], rows[:, 0]))
        rows, where = rows[order], where[order]
        first[where] = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(where)]
    return first


def count_repeated(chunks: Sequence[Path], name: str) -> tuple[int, int]:
    """Return (the number of lines, the number of lines that are duplicates of earlier ones).

    With more than SAMPLE lines, the second number is an estimate."""
    total = sum(len(rows) for rows in stored(chunks, name))
    shares = max(1, -(-total // SAMPLE))
    parts = [rows[rows % np.uint64(shares) == 0] for rows in stored(chunks, name)]
    sampled = np.concatenate([np.empty(0, np.uint64), *parts])
    return total, (len(sampled) - len(np.unique(sampled))) * shares


def mark_lowest_hashes(chunks: Sequence[Path], among: np.ndarray, count: int) -> np.ndarray:
    """Mark the `count` documents with the lowest hashes `among` those marked: a random choice that depends only on the
    texts."""
    hashes, places, offset = np.empty(0, np.uint64), np.empty(0, np.int64), 0
    for rows in stored(chunks, "documents"):
        here = np.flatnonzero(among[offset : offset + len(rows)])
        hashes, places = np.concatenate([hashes, rows[here, 0]]), np.concatenate([places, here + offset])
        order = np.argsort(hashes, kind="stable")[:count]
        hashes, places = hashes[order], places[order]
        offset += len(rows)
    chosen = np.zeros(len(among), bool)
    chosen[places] = True
    return chosen
