"""Find candidates with the HNSW index of faiss, a graph of neighbours: a query is compared with few of the vectors. It
stores one byte per number, because the full vectors score the candidates."""

import errno
import os
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.output import atomic_file
from bert_jax.search.segment_files import SegmentFiles

HNSW_FILE = "hnsw.faiss"
LINKS, BUILDING_BREADTH, BREADTH = 32, 80, 128  # M, efConstruction and minimum efSearch
SAMPLE = 1 << 16  # vectors that give the range of each dimension
CANDIDATE_FACTOR = 2  # candidates per requested passage
ROWS = 1 << 16  # added at once


def import_faiss():
    try:
        import faiss
    except ImportError as error:
        raise BertJaxError(
            f"--approximate needs faiss ({first_line(error)}); install it with pip install faiss-cpu"
        ) from error
    return faiss


def write_hnsw(folder: Path, vectors: np.ndarray) -> None:
    faiss, (count, width) = import_faiss(), vectors.shape
    index = faiss.index_factory(width, f"HNSW{LINKS},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BUILDING_BREADTH
    sample = np.random.default_rng(0).permutation(count)[:SAMPLE]
    index.train(vectors[np.sort(sample)])
    for start in range(0, count, ROWS):
        index.add(vectors[start : start + ROWS])
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
    faiss, wanted = import_faiss(), min(CANDIDATE_FACTOR * count, index.ntotal)
    selector = None if live is None else faiss.IDSelectorBitmap(np.packbits(live, bitorder="little"))
    parameters = faiss.SearchParametersHNSW(efSearch=max(BREADTH, wanted), sel=selector)
    _, places = index.search(np.ascontiguousarray(queries, np.float32), wanted, params=parameters)
    return [row[row >= 0] for row in places]
