"""How well clusters agree with labels."""

from collections.abc import Sequence

import numpy as np

from bert_jax.metrics.score_sums import ScoreSums, check_lengths, safe_ratio


def score_clusters(assigned: Sequence, truth: Sequence[str]) -> ScoreSums:
    """Score how well clusters agree with labels: homogeneity, completeness and their harmonic mean, the V-measure.

    The entropies of a resample use the frequencies of labels and clusters among all examples. To first order, this
    equals using its own frequencies, but it leaves out the agreement that a resample gains by chance alone.
    """

    def surprise(values) -> np.ndarray:
        _, place, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
        return -np.log(counts / len(values))[place]

    def scores(sums):
        label, cluster, both = (sums[..., n] / sums[..., -1] for n in range(3))
        shared = np.maximum(label + cluster - both, 0)
        return {
            "v_measure": np.minimum(safe_ratio(2 * shared, label + cluster), 1),
            "homogeneity": np.minimum(safe_ratio(shared, label), 1),
            "completeness": np.minimum(np.where(cluster > 0, safe_ratio(shared, cluster), 1), 1),
        }

    check_lengths(assigned, truth)
    t, a = (np.unique(side, return_inverse=True)[1] for side in (np.array(truth), np.array(assigned)))
    rows = [surprise(t), surprise(a), surprise(np.stack([t, a], 1)), np.ones(len(t))]
    return ScoreSums(np.stack(rows, 1), scores)
