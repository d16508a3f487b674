"""Candidates for the nearest vectors: from products of many rows, binary vectors, or an HNSW index of faiss."""

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
from threadpoolctl import ThreadpoolController

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.output import atomic_file
from bert_jax.core.processor import cores
from bert_jax.data.npy_writer import npy_writer
from bert_jax.search.segment_files import SegmentFiles
from bert_jax.search.vector_files import to_bits

BITS, HNSW_FILE = "binary.npy", "hnsw.faiss"
HNSW_CANDIDATES = 2  # per requested passage
ROWS = 1 << 15  # the most rows scored at once
HELD = 1 << 24  # the most scores in a block
LINKS, BUILDING_BREADTH, BREADTH = 32, 80, 128  # of HNSW: M, efConstruction and minimum efSearch
SAMPLE = 1 << 16  # vectors that give HNSW the range of each dimension
ADDED = 1 << 16  # vectors added to HNSW at once

Scores = Callable[[slice], np.ndarray]  # slice of rows -> their scores [Q, rows]


def find_best_rows(
    scores_of: Scores, queries: int, rows: int, live: np.ndarray | None, count: int, noise: float = 0.0
) -> list[np.ndarray]:
    """Return, for each query, the rows whose scores are at most `noise` below the `count`-th highest score."""
    size = max(1, min(ROWS, HELD // queries))
    positions, best = [np.empty(0, np.int64)] * queries, [np.empty(0, np.float32)] * queries
    minimum = np.full(queries, -np.inf, np.float32)
    blocks = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
    for block, scores in zip(blocks, score_ahead(scores_of, blocks), strict=True):
        if live is not None:
            scores[:, ~live[block]] = -np.inf
        for query, row in enumerate(scores):
            among = np.flatnonzero((row >= minimum[query]) & (row > -np.inf))
            if not len(among):
                continue
            kept_rows = np.append(positions[query], among + block.start)
            values = np.append(best[query], row[among])
            if len(values) > count:
                minimum[query] = np.partition(values, -count)[-count] - np.float32(noise)
                kept = values >= minimum[query]
                kept_rows, values = kept_rows[kept], values[kept]
            positions[query], best[query] = kept_rows, values
    return positions


def score_ahead(scores_of: Scores, blocks: Sequence[slice]) -> Iterator[np.ndarray]:
    """Yield the scores of each block in order, computing a few blocks ahead. Each core computes whole blocks: the BLAS
    would split a block among its threads, which wait for each other if other programs run."""
    workers = cores()
    with blas_threads().limit(limits=1), ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future] = deque()
        for block in blocks:
            ahead.append(pool.submit(scores_of, block))
            if len(ahead) > workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@cache
def blas_threads() -> ThreadpoolController:
    return ThreadpoolController()


def write_bits(folder: Path, vectors: np.ndarray) -> None:
    """Write the binary vectors beside the full ones."""
    with npy_writer(folder / BITS, np.uint8) as file:
        for start in range(0, len(vectors), ROWS):
            file.append(to_bits(vectors[start : start + ROWS]))


def binary_scores(queries: np.ndarray, rows: np.ndarray) -> Scores:
    """Score rows by minus the number of bits that differ from the query's, where this is not 0."""
    wide = np.uint64 if rows.shape[1] % 8 == 0 else np.uint8
    wanted, compared = to_bits(queries).view(wide), to_bits(queries != 0).view(wide)
    has_zeros = not queries.all()

    def scores(block: slice) -> np.ndarray:
        part = rows[block].view(wide)
        differing = np.empty((len(wanted), block.stop - block.start), np.float32)
        for sums, bits, mask in zip(differing, wanted, compared, strict=True):
            differs = part ^ bits
            if has_zeros:
                differs &= mask
            counts = np.bitwise_count(differs)
            sums[:] = counts[:, 0]
            for column in counts.T[1:]:  # faster than `sum` along such a short axis
                sums += column
        return -differing

    return scores


def import_faiss():
    try:
        import faiss
    except ImportError as error:
        raise BertJaxError(
            f"--approximate needs faiss ({first_line(error)}); install it with pip install faiss-cpu"
        ) from error
    return faiss


def write_hnsw(folder: Path, vectors: np.ndarray) -> None:
    """Write the HNSW index of faiss, a graph of neighbours: a query is compared with few of the vectors. It stores one
    byte per number, because the full vectors score the candidates."""
    faiss, (count, width) = import_faiss(), vectors.shape
    index = faiss.index_factory(width, f"HNSW{LINKS},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BUILDING_BREADTH
    sample = np.random.default_rng(0).permutation(count)[:SAMPLE]
    index.train(vectors[np.sort(sample)])
    for start in range(0, count, ADDED):
        index.add(vectors[start : start + ADDED])
    with atomic_file(folder / HNSW_FILE) as new:
        faiss.write_index(index, str(new))


def open_hnsw(files: SegmentFiles, passages: int, dimensions: int):
    faiss, path = import_faiss(), files.folder / HNSW_FILE
    if is_mapped := files.is_large(HNSW_FILE):
        files.watch(HNSW_FILE)
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if is_mapped else 0)
    except RuntimeError as error:
        if not path.exists():  # a writer may have removed it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
        raise files.damage_error(HNSW_FILE) from error
    if (index.ntotal, index.d) != (passages, dimensions):
        raise files.damage_error(HNSW_FILE)
    return index


def find_hnsw_candidates(index, queries: np.ndarray, live: np.ndarray | None, count: int) -> list[np.ndarray]:
    """Return, for each query [Q, D], the indices of vectors near it, in no guaranteed order: up to twice `count`, but
    possibly fewer than `count` if faiss finds no more."""
    faiss, wanted = import_faiss(), min(HNSW_CANDIDATES * count, index.ntotal)
    selector = None if live is None else faiss.IDSelectorBitmap(np.packbits(live, bitorder="little"))
    parameters = faiss.SearchParametersHNSW(efSearch=max(BREADTH, wanted), sel=selector)
    _, positions = index.search(np.ascontiguousarray(queries, np.float32), wanted, params=parameters)
    return [row[row >= 0] for row in positions]
