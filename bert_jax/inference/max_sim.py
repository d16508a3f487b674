"""MaxSim: how well the tokens of a document answer those of a query, in NumPy.

Each token of the query takes its highest inner product with any token of the document; their sum is the score.
"""

from collections.abc import Sequence

import numpy as np

AT_ONCE = 1 << 24  # products in memory at once
NO_TOKENS = -1e9  # the score of a document of which no token is compared


def score_joined(query: np.ndarray, tokens: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the scores [N] of documents for a query [Tq, D]; their tokens follow each other in `tokens` [T, D], and
    those of the n-th end at `ends[n]`.

    >>> score_joined(np.eye(2), np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]), np.array([2, 2, 3])).tolist()
    [1.5, -1000000000.0, 1.0]
    """
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    filled = np.flatnonzero(ends > starts)
    scores = np.full(len(ends), NO_TOKENS, np.float32)
    if len(filled):
        products = tokens[: ends[-1]].astype(np.float32, copy=False) @ query.astype(np.float32, copy=False).T
        scores[filled] = np.maximum.reduceat(products, starts[filled], axis=0).sum(-1)
    return scores


def max_sim_matrix(
    queries: Sequence[np.ndarray], documents: Sequence[np.ndarray], mean: bool = False
) -> np.ndarray:
    """Return the score of each query [Tq, D] for each document [Td, D], [Q, N]; with `mean`, divided by the tokens of
    the query."""
    scores = np.zeros((len(queries), len(documents)), np.float32)
    longest = max(map(len, queries), default=1) or 1
    first = 0
    while first < len(documents):
        last, tokens = first, 0
        while last < len(documents) and (
            last == first or tokens + len(documents[last]) <= AT_ONCE // longest
        ):
            tokens += len(documents[last])
            last += 1
        ends = np.cumsum([len(document) for document in documents[first:last]])
        block = np.concatenate(documents[first:last])
        for row, query in enumerate(queries):
            scores[row, first:last] = score_joined(query, block, ends)
        first = last
    if mean:
        scores /= np.maximum([len(query) for query in queries], 1)[:, None].astype(np.float32)
    return scores
