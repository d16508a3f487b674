"""Find passages by sparse vectors, which have a weight for each token of a vocabulary: scores are inner products.

A segment stores the vectors as rows [2, A] of one width, the ids of their tokens, which float32 holds exactly, and the
weights, so that they are cached and copied as dense ones are. Searches go by the postings that are made of the rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bert_jax.inference.computations import SparseVector
from bert_jax.search.index_manifest import SPARSE_ROWS
from bert_jax.search.postings import PostingFiles, Postings, WeightedQuery, Window, write_postings

POSTINGS = PostingFiles("sparse.starts.npy", "sparse.postings.npy", "sparse.weights.npy", np.float32)
# The most tokens of a row, unless the model has its own limit: those with the largest weights.
MAX_ACTIVE_DIMS = 256
WINDOW = 4096  # rows whose postings are sorted at once


def pack_rows(vectors: Sequence[SparseVector], width: int) -> np.ndarray:
    """Return the rows [N, 2, width] of vectors with at most `width` tokens."""
    rows = np.zeros((len(vectors), 2, width), np.float32)
    for row, (tokens, weights) in zip(rows, vectors, strict=True):
        row[0, : len(tokens)], row[1, : len(tokens)] = tokens, weights
    return rows


def unpack_row(row: np.ndarray) -> SparseVector:
    kept = row[1] != 0
    return SparseVector(row[0, kept].astype(np.int32), row[1, kept])


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
        passages, positions = np.nonzero(block[:, 1])
        tokens = block[passages, 0, positions].astype(np.int64)
        order = np.argsort(tokens, kind="stable")
        yield tokens[order], passages[order] + start, block[passages, 1, positions][order]


def weight_query(
    vector: SparseVector,
    tokens: Sequence[str],
    segments: Sequence[tuple[Postings, np.ndarray | None]],
) -> WeightedQuery:
    """Return what the `tokens` of a query's vector add to the scores of the passages of segments, each given as
    (postings, which passages are not removed; None: all)."""
    scores = {}
    for token, weight in zip(vector.ids.tolist(), vector.weights, strict=True):
        of_token = [postings.find(token, live) for postings, live in segments]
        scores[token] = [(passages, weight * weights) for passages, weights in of_token]
    return WeightedQuery(tuple(zip(tokens, scores, strict=True)), scores)
