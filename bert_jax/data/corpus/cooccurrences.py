"""Word embeddings read off corpora: entries that stand near the same others get near vectors.

Counts of pairs of neighbours become positive pointwise mutual information, whose largest singular vectors are the
embeddings. That takes seconds, and masked words alone teach it slowly.
"""

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from bert_jax.data.corpus.directory import Corpus

MOST = 30_000_000  # tokens that are counted
WINDOW = 5  # tokens to each side; one at distance d counts 1/d
CHUNK = 2_000_000  # tokens at a time
FLATTENED = 0.75  # power of the neighbours' frequencies: rare neighbours would tell too much
FEWEST = 10  # occurrences of an entry that gets a vector
SPREAD = (
    0.1  # standard deviation of its numbers: of 0.02, 0.06, 0.12 and 0.25 the middle two gave the lowest loss
)


def read_off(corpora: Sequence[Corpus], entries: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(vectors [entries, width], zeros for rare entries; log frequencies [entries], with a mean of 0)."""
    parts = [part_of(corpus, corpora) for corpus in corpora]
    counts = sum(np.bincount(tokens, minlength=entries) for tokens in parts)
    logs = np.log(counts + 1)
    vectors = singular_vectors(information(sum(neighbours(tokens, entries) for tokens in parts)), width)
    vectors[counts < FEWEST] = 0
    return vectors, (logs - logs.mean()).astype(np.float32)


def part_of(corpus: Corpus, corpora: Sequence[Corpus]) -> np.ndarray:
    """Its first tokens: of all of them no more than MOST, in proportion to the sizes of the corpora."""
    tokens = corpus.train.tokens
    total = sum(len(other.train.tokens) for other in corpora)
    return np.asarray(tokens[: len(tokens) * min(MOST, total) // total], np.int32)


def neighbours(tokens: np.ndarray, entries: int) -> sparse.csr_matrix:
    """[entries, entries] how often each stands near each; nearer ones count more. Ends of documents are ignored."""
    counts = sparse.csr_matrix((entries, entries), dtype=np.float32)
    for distance in range(1, WINDOW + 1):
        for start in range(0, len(tokens) - distance, CHUNK):
            after = tokens[start + distance : start + distance + CHUNK]
            before = tokens[start : start + len(after)]
            weights = np.full(len(after), 1 / distance, np.float32)
            counts += sparse.coo_matrix((weights, (before, after)), counts.shape).tocsr()
    return counts + counts.T


def information(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """Positive pointwise mutual information: the logarithm of how much likelier a neighbour is beside an entry than
    anywhere, 0 where it is not."""
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
