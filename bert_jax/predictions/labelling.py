"""Which texts to label next: those that stand for most of what a model is unsure of.

They are chosen one after another. A text counts for all that are like it, by how unsure the model is of each; what a
text before it counts for as well, it does not count for again. So a text is not chosen for being odd, and not beside
one that says the same.
"""

import numpy as np

from bert_jax.data.randomness import sampled

CHOSEN = 1_000  # texts; the others follow by how unsure the model is of them
STOOD_FOR = 5_000  # texts, drawn at random where there are more
AT_ONCE = 1_000  # texts that are compared with these
TRIED = 16  # of those that may count for most


def by_usefulness(vectors: np.ndarray, doubts: np.ndarray) -> np.ndarray:
    """Indices of the texts with these vectors [N, D], the most useful first; a doubt [N] is 0 where a model is sure."""
    count, vectors = len(vectors), directions(vectors)
    others = sampled("labelling", count, STOOD_FOR)
    columns, weights = np.ascontiguousarray(vectors[others].T), doubts[others].astype(np.float32)
    reached = np.zeros(len(others), np.float32)  # how like each of the others the most similar chosen text is

    def likeness(rows) -> np.ndarray:
        # Squared, so that one close text counts more than many that are hardly alike.
        return np.square(np.maximum(vectors[rows] @ columns, 0))

    def gains(rows) -> np.ndarray:
        return np.maximum(likeness(rows) - reached, 0) @ weights

    blocks = [gains(slice(first, first + AT_ONCE)) for first in range(0, count, AT_ONCE)]
    gain, chosen = np.concatenate([np.zeros(0, np.float32), *blocks]), []
    for _ in range(min(count, CHOSEN)):
        # A gain only falls when more is chosen: one that is below a new gain need not be computed anew.
        is_new = np.zeros(count, bool)
        while not is_new[best := int(gain.argmax())]:
            old = np.argpartition(np.where(is_new, np.inf, -gain), min(TRIED, count - 1))[:TRIED]
            gain[old] = np.where(gain[old] > -np.inf, gains(old), -np.inf)
            is_new[old] = True
        if gain[best] <= 0:
            break
        chosen.append(best)
        reached = np.maximum(reached, likeness(best))
        gain[best] = -np.inf
    rest = np.setdiff1d(np.arange(count), chosen)
    return np.concatenate([chosen, rest[np.argsort(-doubts[rest], kind="stable")]]).astype(int)


def directions(vectors: np.ndarray) -> np.ndarray:
    """From the mean of all, which vectors of some models are close to."""
    centred = vectors.astype(np.float32) - vectors.mean(0, dtype=np.float32)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
