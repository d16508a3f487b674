"""Choose the texts to label next: texts that represent most of what a model is unsure about.

They are chosen greedily. The gain of a text is the sum of the model's doubts about all texts, each weighted by how much
more similar it is to this text than to any chosen one. So neither outliers nor near-duplicates of chosen texts are
chosen.
"""

import numpy as np

from bert_jax.data.randomness import sample_indices

CHOSEN = 1_000  # texts that are chosen greedily; the others follow, the most doubtful first
STOOD_FOR = 5_000  # texts to represent; a random sample if there are more
AT_ONCE = 1_000  # texts that are compared with them in one product
TRIED = 16  # texts whose gain is computed anew at once, the highest old gains first


def rank_by_usefulness(vectors: np.ndarray, uncertainties: np.ndarray) -> np.ndarray:
    """Return the indices of texts with vectors [N, D] and doubts [N], the most useful first.

    A doubt of 0 means that the model is sure.
    """
    count, vectors = len(vectors), centred_directions(vectors)
    others = sample_indices("labelling", count, STOOD_FOR)
    columns, weights = np.ascontiguousarray(vectors[others].T), uncertainties[others].astype(np.float32)
    reached = np.zeros(len(others), np.float32)  # the similarity of each to the most similar chosen text

    def similarity(rows) -> np.ndarray:
        # Squared, so that one similar text counts more than many that are hardly similar.
        return np.square(np.maximum(vectors[rows] @ columns, 0))

    def gains(rows) -> np.ndarray:
        return np.maximum(similarity(rows) - reached, 0) @ weights

    blocks = [gains(slice(first, first + AT_ONCE)) for first in range(0, count, AT_ONCE)]
    gain, chosen = np.concatenate([np.zeros(0, np.float32), *blocks]), []
    for _ in range(min(count, CHOSEN)):
        # A gain only falls as more texts are chosen, so one that is below an updated gain needs no update.
        is_new = np.zeros(count, bool)
        while not is_new[best := int(gain.argmax())]:
            old = np.argpartition(np.where(is_new, np.inf, -gain), min(TRIED, count - 1))[:TRIED]
            gain[old] = np.where(gain[old] > -np.inf, gains(old), -np.inf)
            is_new[old] = True
        if gain[best] <= 0:
            break
        chosen.append(best)
        reached = np.maximum(reached, similarity(best))
        gain[best] = -np.inf
    rest = np.setdiff1d(np.arange(count), chosen)
    return np.concatenate([chosen, rest[np.argsort(-uncertainties[rest], kind="stable")]]).astype(int)


def centred_directions(vectors: np.ndarray) -> np.ndarray:
    """Return the directions from the mean vector, of length 1. In some models all vectors are close to their mean."""
    centred = vectors.astype(np.float32) - vectors.mean(0, dtype=np.float32)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
