"""Token pooling: the vectors of a text's tokens are grouped by their directions, and each group is averaged."""

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.hub.multi_vector_encoder import TokenPooling


def pool_tokens(vectors: np.ndarray, pooling: TokenPooling) -> np.ndarray:
    """Return a `factor`-th of the vectors [T, D], after the first ones, which stay as they are.

    Groups are those of Ward's linkage over cosine distances.

    >>> pool_tokens(np.array([[1.0, 0], [0, 1], [0, 1], [1, 0], [1, 0]]), TokenPooling(2.0)).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    kept, rest = vectors[: pooling.protected], vectors[pooling.protected :]
    count = max(int(len(rest) // pooling.factor), 1)
    if len(rest) <= count:
        return vectors
    from scipy.cluster.hierarchy import fcluster, linkage

    rows, columns = np.triu_indices(len(rest), 1)
    distances = np.clip(1 - (rest @ rest.T)[rows, columns], 0, 2)
    groups = fcluster(linkage(distances, "ward"), count, "maxclust")
    first = [np.flatnonzero(groups == group)[0] for group in np.unique(groups)]
    means = np.stack([rest[groups == groups[position]].mean(0) for position in sorted(first)])
    if pooling.normalize:
        means /= np.maximum(np.linalg.norm(means, axis=-1, keepdims=True), 1e-12)
    return np.concatenate([kept, means.astype(vectors.dtype)])


def choose_pooling(usual: TokenPooling | None, factor: float | None) -> TokenPooling | None:
    """Return how tokens are pooled: by a `factor` that is given, else as the model does."""
    if factor is None:
        return usual
    check_number(factor, "pool_factor", allowed=Range(1))
    return TokenPooling(float(factor))
