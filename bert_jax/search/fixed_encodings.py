"""Fixed dimensional encodings of token vectors (MUVERA, arXiv 2405.19504): a passage becomes one vector, whose inner
product with that of a query is near their MaxSim, so that the search of vectors finds candidates for it.

REPETITIONS times, hyperplanes cut space into cells. Of the tokens of a passage in a cell the mean is taken, of those of
a query the sum: where tokens that are near share a cell, the product of these is that of a query's token with those of
the passage that answer it. A cell without tokens of the passage gets the first token of the nearest cell, counted in
hyperplanes between them. Each cell's vector is projected to fewer numbers by random signs.

Only the signs of an encoding are stored, and compared with those of the query where this has tokens.

Hyperplanes and signs are drawn from a seed, and are whole numbers as the stored token vectors are: products are exact,
so that encodings do not depend on which passages are computed together.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from bert_jax.data.npy_writer import npy_writer
from bert_jax.search.candidates import blas_threads
from bert_jax.search.late_interaction import inverse_lengths
from bert_jax.search.ragged_rows import RaggedRows
from bert_jax.search.vector_files import to_bits

FILE = "token_encodings.npy"
REPETITIONS, PLANES, WIDTH = 40, 4, 8  # of each repetition: hyperplanes, and numbers of a cell
CELLS = 1 << PLANES
SIZE = REPETITIONS * CELLS * WIDTH  # numbers of an encoding
SEED = 20
PLANE_STEP = 1 / 128  # of the numbers of hyperplanes
AT_ONCE = 64  # passages encoded at once


@dataclass(frozen=True)
class Encodings:
    """The encodings of token vectors of so many dimensions."""

    dimensions: int

    @cached_property
    def planes(self) -> np.ndarray:
        drawn = np.random.default_rng((SEED, 0)).normal(size=(self.dimensions, REPETITIONS * PLANES))
        return np.rint(drawn / PLANE_STEP).astype(np.float32)

    @cached_property
    def signs(self) -> np.ndarray:
        drawn = np.random.default_rng((SEED, 1)).integers(2, size=(self.dimensions, REPETITIONS * WIDTH))
        return (2 * drawn - 1).astype(np.float32)

    def cells_and_numbers(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the cell of each token [T, R] and its projections [T, R, W], without their scale."""
        with blas_threads().limit(limits=1):  # several would wait for each other if other programs run
            sides = (tokens @ self.planes > 0).reshape(len(tokens), REPETITIONS, PLANES)
            numbers = (tokens @ self.signs).reshape(len(tokens), REPETITIONS, WIDTH)
        return sides @ (1 << np.arange(PLANES)), numbers

    def encode_query(self, tokens: np.ndarray) -> np.ndarray:
        """Return the encoding [E] of a query's token vectors [T, D], whose products with those of passages are near
        MaxSim."""
        cells, numbers = self.cells_and_numbers(tokens.astype(np.float32))
        sums = np.zeros((REPETITIONS, CELLS, WIDTH), np.float32)
        np.add.at(sums, (np.arange(REPETITIONS), cells), numbers)
        return sums.ravel() / (REPETITIONS * WIDTH)

    def encode_passages(self, rows: list[np.ndarray]) -> np.ndarray:
        """Return the encodings [N, E] of passages, given as their stored token vectors."""
        ragged = RaggedRows.join(rows)
        tokens = ragged.values.astype(np.float32)
        cells, numbers = self.cells_and_numbers(tokens)
        numbers *= inverse_lengths(tokens)[:, None, None]
        passages, groups = np.arange(len(rows)).repeat(np.diff(ragged.starts)), len(rows) * REPETITIONS
        # Of each token and repetition: the cell, among those of all passages and repetitions.
        positions = ((passages[:, None] * REPETITIONS + np.arange(REPETITIONS)) * CELLS + cells).ravel()
        flat, size = numbers.reshape(-1, WIDTH), groups * CELLS
        counts = np.bincount(positions, minlength=size)
        sums = np.stack([np.bincount(positions, column, size) for column in flat.T], -1)
        encodings = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        first = np.zeros(size, np.int64)
        first[positions[::-1]] = np.arange(len(positions))[::-1]
        is_filled = counts.reshape(groups, CELLS) > 0
        group, cell = np.nonzero(~is_filled & is_filled.any(1, keepdims=True))
        nearest = nearest_cells(is_filled)[group, cell]
        encodings[group * CELLS + cell] = flat[first[group * CELLS + nearest]]
        return encodings.reshape(len(rows), SIZE)


def nearest_cells(is_filled: np.ndarray) -> np.ndarray:
    """Return, for each cell of each group [G, CELLS], the nearest one that has tokens; the first of those equally near.

    >>> nearest_cells(np.eye(CELLS, dtype=bool)[:1])[0, :3].tolist()
    [0, 0, 0]
    """
    cells = np.arange(CELLS)
    distances = np.bitwise_count(cells[:, None] ^ cells).astype(np.uint8)
    return np.where(is_filled[:, None, :], distances, np.uint8(PLANES + 1)).argmin(-1)


@lru_cache(maxsize=4)
def encodings_of(dimensions: int) -> Encodings:
    return Encodings(dimensions)


def write_encodings(folder: Path, rows: RaggedRows) -> None:
    """Write the signs of the encodings of all passages."""
    encodings = encodings_of(rows.values.shape[1])
    with npy_writer(folder / FILE, np.uint8) as file:
        for start in range(0, len(rows), AT_ONCE):
            some = [rows[position] for position in range(start, min(start + AT_ONCE, len(rows)))]
            file.append(to_bits(encodings.encode_passages(some)))
