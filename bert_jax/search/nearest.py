"""Passages found by their vectors: exactly, or first among smaller vectors.

Candidates come from products of many rows at once, whose last bits depend on which rows stand beside a row. So all
that may be among the nearest are scored again, each alone in float64: equal vectors have equal scores, wherever they
are.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from bert_jax.data.arrays import growing_array
from bert_jax.data.corpus.chunks import cores
from bert_jax.retrieval import highest
from bert_jax.search import approximate
from bert_jax.search.quantization import STEPS, ranges_of, to_bits, to_bytes

VECTORS = "vectors.npy"
SMALL = {"int8": ("int8.npy", "ranges.npy"), "binary": ("binary.npy",)}
LEAST = 4096  # passages of a segment below which it is searched exactly, whatever the settings
MORE = {"int8": 4, "binary": 32}  # candidates for each passage that is asked for
ROWS = 1 << 15  # that are scored at once
HELD = 1 << 24  # that are held at once
CACHED = 2048  # of a byte a number, that are made float32 at once
NOISE = 1e-5  # by which a score in float32 may be wrong

Scores = Callable[[slice], np.ndarray]  # of a slice of rows, [Q, rows]


class Segment(Protocol):
    vectors: np.ndarray
    small: dict[str, list[np.ndarray]]  # by kind: the vectors, and what else their scores need
    order: np.ndarray  # the first of passages with equal scores
    live: np.ndarray | None  # which passages are there; None: all
    approximate: Any  # index of faiss, or None


def nearest_in(
    segment: Segment, queries: np.ndarray, count: int, exact: bool = False
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query [Q, D] the passages with the highest inner products, the best first, and these."""
    candidates = exact_candidates if exact else candidates_in
    results = []
    for query, rows in zip(queries.astype(np.float64), candidates(segment, queries, count), strict=True):
        scores = (segment.vectors[rows].astype(np.float64) * query).sum(-1).astype(np.float32)
        best = highest(scores, segment.order[rows], count)
        results.append((rows[best], scores[best]))
    return results


def candidates_in(segment: Segment, queries: np.ndarray, count: int) -> list[np.ndarray]:
    if segment.approximate is not None:
        places = approximate.candidates(segment.approximate, queries, segment.live, count)
        wanted = min(count, len(segment.order) if segment.live is None else int(segment.live.sum()))
        if all(len(rows) >= wanted for rows in places):
            return places
    for kind, (rows, *beside) in segment.small.items():
        scores_of = SCORES_OF[kind](queries, rows, *beside)
        return best_rows(scores_of, len(queries), len(rows), segment.live, MORE[kind] * count)
    return exact_candidates(segment, queries, count)


def exact_candidates(segment: Segment, queries: np.ndarray, count: int) -> list[np.ndarray]:
    vectors = segment.vectors
    return best_rows(
        lambda block: queries @ vectors[block].T, len(queries), len(vectors), segment.live, count, NOISE
    )


def best_rows(
    scores_of: Scores, queries: int, rows: int, live: np.ndarray | None, count: int, noise: float = 0.0
) -> list[np.ndarray]:
    """For each query the rows with the `count` highest scores, and those whose score is lower by `noise` at most."""
    size = max(1, min(ROWS, HELD // queries))
    places, best = [np.empty(0, np.int64)] * queries, [np.empty(0, np.float32)] * queries
    least = np.full(queries, -np.inf, np.float32)
    blocks = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
    for block, scores in zip(blocks, side_by_side(scores_of, blocks), strict=True):
        if live is not None:
            scores[:, ~live[block]] = -np.inf
        for query, row in enumerate(scores):
            among = np.flatnonzero((row >= least[query]) & (row > -np.inf))
            if not len(among):
                continue
            known, values = np.append(places[query], among + block.start), np.append(best[query], row[among])
            if len(values) > count:
                least[query] = np.partition(values, -count)[-count] - np.float32(noise)
                kept = values >= least[query]
                known, values = known[kept], values[kept]
            places[query], best[query] = known, values
    return places


def side_by_side(scores_of: Scores, blocks: Sequence[slice]) -> Iterator[np.ndarray]:
    """The scores of each block, in order, computed a few ahead. Each core takes blocks of its own: threads of the BLAS
    share one, and wait for each other where other programs run."""
    workers = cores()
    with blas().limit(limits=1), ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future] = deque()
        for block in blocks:
            ahead.append(pool.submit(scores_of, block))
            if len(ahead) > workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@cache
def blas() -> ThreadpoolController:
    return ThreadpoolController()


def write_small(folder: Path, kind: str, vectors: np.ndarray) -> None:
    """The vectors in fewer bytes, beside them."""
    parts = [vectors[start : start + ROWS] for start in range(0, len(vectors), ROWS)]
    name, *beside = SMALL[kind]
    ranges = ranges_of(parts) if beside else None
    with growing_array(folder / name, np.uint8 if ranges is None else np.int8) as file:
        for part in parts:
            file.append(to_bits(part) if ranges is None else to_bytes(part, ranges))
    if ranges is not None:
        with growing_array(folder / beside[0], np.float32) as file:
            file.append(ranges)


def int8_scores(queries: np.ndarray, rows: np.ndarray, ranges: np.ndarray) -> Scores:
    """Products with the middles of the steps, but for what is the same for all rows."""
    weighted = queries * ((ranges[1] - ranges[0]) / STEPS)

    def scores(block: slice) -> np.ndarray:
        parts = (
            rows[start : min(start + CACHED, block.stop)] for start in range(block.start, block.stop, CACHED)
        )
        return np.concatenate([weighted @ part.astype(np.float32).T for part in parts], axis=1)

    return scores


def binary_scores(queries: np.ndarray, rows: np.ndarray) -> Scores:
    """How many bits are the same as the query's, but for what is the same for all rows."""
    wide = np.uint64 if rows.shape[1] % 8 == 0 else np.uint8
    wanted = to_bits(queries).view(wide)

    def scores(block: slice) -> np.ndarray:
        part = rows[block].view(wide)
        differing = np.empty((len(wanted), block.stop - block.start), np.float32)
        for sums, bits in zip(differing, wanted, strict=True):
            counts = np.bitwise_count(part ^ bits)
            sums[:] = counts[:, 0]
            for column in counts.T[1:]:  # a sum along so short an axis takes longer
                sums += column
        return -differing

    return scores


SCORES_OF: dict[str, Callable[..., Scores]] = {"int8": int8_scores, "binary": binary_scores}
