"""The regularizer of sparse embeddings, and measures of how sparse they are.

Vectors are [N, T, V], those of the texts of groups; `weights` [N] are 0 for groups that are padding.
"""

import jax.numpy as jnp

from bert_jax.losses.loss import Loss

ACTIVE_DIMS = ("query_active_dims", "document_active_dims")  # mean numbers of entries that are not 0
FLOPS = "flops"  # mean number of products of a query with a document


def mean_over_texts(values, weights):
    """The mean [V] of values [N, T, V]."""
    return jnp.einsum("n,ntv->v", weights, values) / jnp.maximum(weights.sum() * values.shape[1], 1)


def flops_regularizer(vectors, weights):
    """The sum of the squared mean weights of all entries of the vocabulary."""
    return (mean_over_texts(vectors, weights) ** 2).sum()


def warmup_share(finished_steps, steps: int):
    """The share of its weight that a regularizer has in a step: it rises quadratically in the first third of the steps.

    >>> [round(float(warmup_share(finished, 12)), 4) for finished in (0, 1, 2, 4, 5)]
    [0.0, 0.0625, 0.25, 1.0, 1.0]
    """
    return jnp.minimum(finished_steps / max(steps // 3, 1), 1) ** 2


def sparsity_scores(queries, documents, weights) -> dict[str, Loss]:
    shares = [
        mean_over_texts((vectors != 0).astype(jnp.float32), weights) for vectors in (queries, documents)
    ]
    means = dict(zip(ACTIVE_DIMS, (share.sum() for share in shares), strict=True))
    means[FLOPS] = (shares[0] * shares[1]).sum()
    return {name: Loss(mean * weights.sum(), weights.sum()) for name, mean in means.items()}
