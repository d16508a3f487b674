"""Find candidates with a faiss index, which compares a query with only a few of the vectors: HNSW's neighbour graph or
IVF's lists around centroids. Both store one byte per number, because the full vectors score the candidates."""

import errno
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.output import atomic_file

ENDING = ".faiss"
LINKS, BUILDING_BREADTH, BREADTH = 32, 80, 128  # HNSW's M, efConstruction and minimum efSearch
LISTS = 4  # IVF has this many lists times the square root of the number of vectors, at most
PROBED, LEAST_PROBED = 16, 8  # one in PROBED lists is searched, but at least LEAST_PROBED lists
SAMPLE = 64  # training vectors per list, to find the centroids; faiss wants 39 or more
MORE = 2  # candidates per requested passage
ROWS = 1 << 16  # added at once


def library():
    try:
        import faiss
    except ImportError as error:
        raise BertJaxError(
            f"--approximate needs faiss ({first_line(error)}); install it with pip install faiss-cpu"
        ) from error
    return faiss


def write(folder: Path, kind: str, vectors: np.ndarray) -> None:
    faiss, (count, width) = library(), vectors.shape
    lists = max(1, min(LISTS * math.isqrt(count), count // 39))
    spec = f"HNSW{LINKS},SQ8" if kind == "hnsw" else f"IVF{lists},SQ8"
    index = faiss.index_factory(width, spec, faiss.METRIC_INNER_PRODUCT)
    if kind == "hnsw":
        index.hnsw.efConstruction = BUILDING_BREADTH
    sample = np.random.default_rng(0).permutation(count)[: SAMPLE * lists]
    index.train(vectors[np.sort(sample)])
    for start in range(0, count, ROWS):
        index.add(vectors[start : start + ROWS])
    with atomic_file(folder / f"{kind}{ENDING}") as new:
        faiss.write_index(index, str(new))


def read(path: Path):
    faiss = library()
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        if not path.exists():  # a writer may have removed it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
        raise BertJaxError(f"{path} is damaged; copy the index again, or build it again") from error


def candidates(index, queries: np.ndarray, live: np.ndarray | None, count: int) -> list[np.ndarray]:
    """Return, for each query [Q, D], the indices of vectors near it, in no guaranteed order: up to twice `count`, but
    possibly fewer than `count` if faiss finds no more."""
    faiss, wanted = library(), min(MORE * count, index.ntotal)
    how: dict[str, Any] = {}
    if live is not None:
        bits = np.packbits(live, bitorder="little")
        how["sel"] = faiss.IDSelectorBitmap(bits)
    if isinstance(index, faiss.IndexHNSW):
        parameters = faiss.SearchParametersHNSW(efSearch=max(BREADTH, wanted), **how)
    else:
        parameters = faiss.SearchParametersIVF(nprobe=probes(index.nlist), **how)
    _, places = index.search(np.ascontiguousarray(queries, np.float32), wanted, params=parameters)
    return [row[row >= 0] for row in places]


def probes(lists: int) -> int:
    return max(LEAST_PROBED, lists // PROBED)
