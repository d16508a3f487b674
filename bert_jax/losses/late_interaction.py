"""Losses of late interaction: as those of embeddings, with the MaxSim of the texts' token vectors as their similarity.

Each loss equals its counterpart in sentence-transformers, with the same exception as those of embeddings.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from bert_jax.losses.embedding import (
    EMBEDDING_LOSSES,
    EmbeddingLoss,
    EmbeddingLossSettings,
    info_nce,
    margin_error,
    ranking_divergence,
    scales,
)
from bert_jax.losses.loss import Loss
from bert_jax.models.max_sim import max_sim, max_sim_of_own


class TokenVectorBatch(NamedTuple):
    """The vectors of groups of texts; masks are 0 for tokens that are not scored."""

    queries: Any  # [N, S, D], of the anchors
    query_mask: Any  # [N, S]
    documents: Any  # [N, T - 1, L, D], of the other texts of the groups
    document_mask: Any  # [N, T - 1, L]


@dataclass(frozen=True)
class LateInteractionLossSettings(EmbeddingLossSettings):
    mean: bool = False  # whether a score is divided by the number of the query's tokens
    normalize_scores: bool = False  # whether a query's scores are scaled to 0..1 before they are compared


def multiple_negatives(tokens: TokenVectorBatch, batch: dict, s: LateInteractionLossSettings) -> Loss:
    """Cross-entropy of finding each anchor's positive among the positives and negatives of all groups."""
    documents, mask = (
        jnp.moveaxis(x, 1, 0).reshape(-1, *x.shape[2:]) for x in (tokens.documents, tokens.document_mask)
    )

    def products(rows):
        return max_sim(tokens.queries[rows], tokens.query_mask[rows], documents, mask, s.mean)

    return info_nce(products, batch, scales(batch, s), (0, 1))


def margin_mse(tokens: TokenVectorBatch, batch: dict, s: LateInteractionLossSettings) -> Loss:
    """The squared error of (score of the positive - of each negative) against the teacher's difference."""
    return margin_error(max_sim_of_own(*tokens, s.mean), batch)


def teacher_ranking(tokens: TokenVectorBatch, batch: dict, s: LateInteractionLossSettings) -> Loss:
    """The KL divergence of the softmax over a group's scores from the softmax over a teacher's, both at a temperature
    of 1 / scale; it is divided by the squared scale, so that gradients are about as large at any."""
    scores = max_sim_of_own(*tokens, s.mean)
    if s.normalize_scores:
        scores -= scores.min(-1, keepdims=True)
        scores /= scores.max(-1, keepdims=True) + 1e-8
    loss = ranking_divergence(s.scale * scores, s.scale * batch["scores"], batch)
    return Loss(loss.total / s.scale**2, loss.weight)


LATE_INTERACTION_LOSSES = {
    loss.__name__: EmbeddingLoss(
        loss, EMBEDDING_LOSSES[loss.__name__].fits, reads, in_batch=loss is multiple_negatives,
        scored=EMBEDDING_LOSSES[loss.__name__].scored,
    )
    for loss, reads in (
        (multiple_negatives, ("scale",)),
        (margin_mse, ()),
        (teacher_ranking, ("scale", "normalize_scores")),
    )
}  # fmt: skip
