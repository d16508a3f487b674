"""Find passages by sparse vectors, which have a weight for each token of a vocabulary: scores are inner products.

A segment stores the vectors as rows [2, A] of one width, the ids of their tokens, which float32 holds exactly, and the
weights, so that they are cached and copied as dense ones are. Searches go by the postings that are made of the rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.search.index_manifest import SPARSE_ROWS
from bert_jax.search.postings import PostingFiles, Postings, WeightedQuery, Window, write_postings
from bert_jax.search.segment_files import SegmentFiles

if TYPE_CHECKING:
    from scipy.sparse import csr_array

POSTINGS = PostingFiles("sparse.starts.npy", "sparse.postings.npy", "sparse.weights.npy", np.float32)
ACTIVE = 256  # the most tokens of a row, unless the model has its own limit: those with the largest weights
WINDOW = 4096  # rows whose postings are sorted at once


def pack_rows(vectors: "csr_array", width: int) -> np.ndarray:
    """Return the rows [N, 2, width] of vectors [N, V] with at most `width` tokens."""
    counts = np.diff(vectors.indptr)
    rows = np.zeros((len(counts), 2, width), np.float32)
    number = np.arange(len(counts)).repeat(counts)
    place = np.arange(len(number)) - vectors.indptr[number]
    rows[number, 0, place], rows[number, 1, place] = vectors.indices, vectors.data
    return rows


def unpack_row(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids and the weights of a row [2, A]."""
    kept = row[1] != 0
    return row[0, kept].astype(np.int32), row[1, kept]


def build_postings(folder: Path, vocabulary: int) -> None:
    """Write the postings of the rows in a folder."""
    rows = np.load(folder / SPARSE_ROWS, mmap_mode="r")
    counts = np.zeros(vocabulary, np.int64)
    for tokens, _, _ in read_windows(rows):
        counts += np.bincount(tokens, minlength=vocabulary)
    write_postings(folder, POSTINGS, counts, read_windows(rows))


def read_windows(rows: np.ndarray) -> Iterator[Window]:
    for start in range(0, len(rows), WINDOW):
        block = rows[start : start + WINDOW]
        passages, places = np.nonzero(block[:, 1])
        tokens = block[passages, 0, places].astype(np.int64)
        order = np.argsort(tokens, kind="stable")
        yield tokens[order], passages[order] + start, block[passages, 1, places][order]


def open_postings(files: SegmentFiles, passages: int, vocabulary: int) -> Postings:
    return Postings.open(files, POSTINGS, vocabulary, passages)


def weight_query(
    vector: "csr_array",
    tokens: Sequence[str],
    segments: Sequence[tuple[Postings, np.ndarray | None]],
) -> WeightedQuery:
    """Return what the `tokens` of a query's vector [1, V] add to the scores of the passages of segments, each given as
    (postings, which passages are not removed; None: all)."""
    scores = {}
    for token, weight in zip(vector.indices.tolist(), vector.data, strict=True):
        found = [postings.find(token, live) for postings, live in segments]
        scores[token] = [(passages, weight * weights) for passages, weights in found]
    return WeightedQuery(tuple(zip(tokens, scores, strict=True)), scores)
