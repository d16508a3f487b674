"""Compute initial word embeddings from corpora: vocabulary entries with similar neighbours get similar vectors.

Counts of pairs of neighbours become positive pointwise mutual information (PPMI), whose largest singular vectors are
the embeddings. This takes seconds, while masked-word training alone learns the same slowly.
"""

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from bert_jax.data.corpus.corpus_directory import Corpus

MOST = 30_000_000  # the most tokens that are counted
WINDOW = 5  # tokens on each side; a neighbour at distance d counts 1/d
CHUNK = 2_000_000  # tokens counted at a time
FLATTENED = 0.75  # exponent of the neighbours' frequencies: without it rare neighbours would count too much
FEWEST = 10  # an entry with fewer occurrences gets no vector
# The standard deviation of a vector's numbers. Of 0.02, 0.06, 0.12 and 0.25 the middle two gave the lowest loss.
SPREAD = 0.1


def cooccurrence_embeddings(
    corpora: Sequence[Corpus], entries: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (vectors [entries, width], zeros for rare entries; log frequencies [entries], shifted to a mean of 0)."""
    parts = [leading_tokens(corpus, corpora) for corpus in corpora]
    counts = sum(np.bincount(tokens, minlength=entries) for tokens in parts)
    logs = np.log(counts + 1)
    near = sum(neighbours(tokens, entries) for tokens in parts)
    vectors = singular_vectors(pointwise_mutual_information(near), width)
    vectors[counts < FEWEST] = 0
    return vectors, (logs - logs.mean()).astype(np.float32)


def leading_tokens(corpus: Corpus, corpora: Sequence[Corpus]) -> np.ndarray:
    """Return the first tokens of a corpus. All corpora together give at most MOST, in proportion to their sizes."""
    tokens = corpus.train.tokens
    total = sum(len(other.train.tokens) for other in corpora)
    return np.asarray(tokens[: len(tokens) * min(MOST, total) // total], np.int32)


def neighbours(tokens: np.ndarray, entries: int) -> sparse.csr_matrix:
    """Count how often every two entries are near each other: [entries, entries]. Nearer neighbours count more.

    Boundaries of documents are ignored."""
    counts = sparse.csr_matrix((entries, entries), dtype=np.float32)
    for distance in range(1, WINDOW + 1):
        for start in range(0, len(tokens) - distance, CHUNK):
            after = tokens[start + distance : start + distance + CHUNK]
            before = tokens[start : start + len(after)]
            weights = np.full(len(after), 1 / distance, np.float32)
            counts += sparse.coo_matrix((weights, (before, after)), counts.shape).tocsr()
    return counts + counts.T


def pointwise_mutual_information(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Compute the positive pointwise mutual information of entries and neighbours.

    It is the logarithm of how much more likely a neighbour is near the entry than anywhere; 0 if it is not more likely.
    """
    pairs = counts.tocoo()
    of_entry = np.asarray(counts.sum(1)).ravel()
    of_neighbour = of_entry**FLATTENED
    of_neighbour /= of_neighbour.sum()
    values = np.log(pairs.data / of_entry[pairs.row] / of_neighbour[pairs.col])
    known = values > 0
    return sparse.csr_matrix((values[known], (pairs.row[known], pairs.col[known])), counts.shape)


def singular_vectors(matrix: sparse.csr_matrix, width: int) -> np.ndarray:
    count = min(width, matrix.shape[0] - 1)
    left, sizes, _ = svds(matrix, k=count, random_state=0)
    vectors = left * np.sqrt(sizes)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors *= SPREAD * np.sqrt(width) / np.maximum(lengths, np.finfo(np.float32).tiny)
    return np.pad(vectors, ((0, 0), (0, width - count))).astype(np.float32)
