"""Mix several corpora into one stream: a closed form gives the corpus of the n-th example, and its index in it."""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.randomness import permuted, random_bits

BLOCK = 1 << 16  # examples; a corpus has the same number of examples in every block


class Mixture:
    """Map example numbers to (corpus, index within the corpus), with corpora in proportion to their weights.

    >>> corpus, place = Mixture([3.0, 1.0], key=7)(np.arange(4 * BLOCK))
    >>> np.bincount(corpus).tolist(), place[corpus == 1].max().item()
    ([196608, 65536], 65535)
    """

    def __init__(self, weights: Sequence[float], key):
        self.key = key
        self.counts = apportioned(weights, BLOCK)
        self.edges = np.concatenate([[0], np.cumsum(self.counts)])

    def __call__(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(self.counts) == 1:
            return np.zeros_like(examples), examples
        corpus, place = np.empty_like(examples), np.empty_like(examples)
        blocks = examples // BLOCK
        for block in np.unique(blocks):
            here = np.flatnonzero(blocks == block)
            shuffled = permuted(examples[here] % BLOCK, BLOCK, random_bits(self.key, block))
            corpus[here] = np.searchsorted(self.edges, shuffled, side="right") - 1
            place[here] = block * self.counts[corpus[here]] + shuffled - self.edges[corpus[here]]
        return corpus, place


def apportioned(weights: Sequence[float], total: int) -> np.ndarray:
    """Divide `total` into whole numbers in proportion to `weights`, each at least 1, by the largest-remainder method.

    >>> apportioned([2, 1], 10).tolist()
    [7, 3]
    """
    share = np.asarray(weights, np.float64) / np.sum(weights) * total
    counts = np.maximum(np.floor(share), 1).astype(np.int64)
    order = np.argsort(counts - share, kind="stable")
    for i in range(total - int(counts.sum())):
        counts[order[i % len(order)]] += 1
    counts[np.argmax(counts)] += total - counts.sum()
    return counts
