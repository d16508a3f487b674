"""Losses of cross-encoders, computed from the logits of each query's candidate documents.

All arrays are [N, K], for N queries with at most K documents each: `logits`; `labels`, how relevant each document is;
`weight`, 0 for padding; and `scores` of a teacher. `scale` is a factor of the logits, or of their sigmoids. Each loss
has the name of its counterpart in sentence-transformers, except `teacher_ranking`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from bert_jax.data.examples.candidates import RELEVANT
from bert_jax.losses.loss import Loss, weighted_loss

NEVER = -1e9  # the logit of padding
MU = 10.0  # in lambda_rank: the weight of the gap between two ranks relative to the ranks themselves, as published


def binary(logits, lists: dict, scale: float) -> Loss:
    """Binary cross-entropy of whether each document is relevant."""
    losses = jax.nn.softplus(scale * logits) - scale * logits * lists["labels"]
    return weighted_loss(losses, lists["label_weights"])


def cross_entropy(logits, lists: dict, scale: float) -> Loss:
    """Cross-entropy of each relevant document against all irrelevant ones, by a softmax over scaled probabilities."""
    is_real, right = lists["label_weights"] > 0, lists["labels"] >= RELEVANT
    scores = scale * jax.nn.sigmoid(logits)
    wrong = jax.nn.logsumexp(jnp.where(is_real & ~right, scores, NEVER), -1, keepdims=True)
    return weighted_loss(jnp.logaddexp(scores, wrong) - scores, lists["label_weights"] * right)


def list_net(logits, lists: dict, scale: float) -> Loss:
    """Cross-entropy between the softmax of the logits and the softmax of the labels."""
    return softmax_cross_entropy(scale * logits, lists["labels"], lists)


def teacher_ranking(logits, lists: dict, scale: float) -> Loss:
    """The KL divergence of the softmax of the logits from that of the teacher's scores, at temperature 1 / scale."""
    scores = scale * lists["scores"]
    cross = softmax_cross_entropy(scale * logits, scores, lists)
    teacher_log_probs = jax.nn.log_softmax(jnp.where(lists["label_weights"] > 0, scores, NEVER))
    entropy = -(jnp.exp(teacher_log_probs) * teacher_log_probs).sum(-1)
    return Loss(cross.total - (entropy * has_documents(lists)).sum(), cross.weight)


def softmax_cross_entropy(logits, wanted, lists: dict) -> Loss:
    """Cross-entropy between the softmax of the logits and the softmax of the `wanted` values."""
    is_real = lists["label_weights"] > 0
    log_probs = jax.nn.log_softmax(jnp.where(is_real, logits, NEVER))
    targets = jax.nn.softmax(jnp.where(is_real, wanted, NEVER))
    return weighted_loss(-(targets * log_probs).sum(-1), has_documents(lists))


def has_documents(lists: dict):
    return (lists["label_weights"] > 0).any(-1).astype(jnp.float32)


def rank_net(logits, lists: dict, scale: float) -> Loss:
    """Of any two documents of a query, the more relevant one should have the higher logit."""
    return weighted_pair_loss(logits, lists, scale, 1.0)


def lambda_rank(logits, lists: dict, scale: float) -> Loss:
    """Like `rank_net`, with each pair of documents weighted by its effect on nDCG (NDCG-Loss2++ of LambdaLoss)."""
    is_real, count = lists["label_weights"] > 0, logits.shape[-1]
    labels = jnp.where(is_real, lists["labels"], 0.0)
    ranks = 1 + descending_ranks(jnp.where(is_real, jax.lax.stop_gradient(logits), NEVER))
    best = -jnp.sort(-labels)
    ideal = ((2**best - 1) / jnp.log2(2.0 + jnp.arange(count))).sum(-1, keepdims=True)
    gain = (2**labels - 1) / jnp.maximum(ideal, 1e-10)
    gap = jnp.abs(ranks[:, :, None] - ranks[:, None, :])
    apart = jnp.where(gap > 0, 1 / jnp.log2(1.0 + jnp.maximum(gap, 1)) - 1 / jnp.log2(2.0 + gap), 0.0)
    discount = 1 / jnp.log2(1.0 + ranks)
    between = jnp.abs(discount[:, :, None] - discount[:, None, :])
    weights = (MU * apart + between) * jnp.abs(gain[:, :, None] - gain[:, None, :])
    return weighted_pair_loss(logits, lists, scale, weights)


def descending_ranks(values):
    """Return the rank of each value within its row, from 0 for the highest. Of equal values the earlier comes first."""
    higher = values[:, None, :] > values[:, :, None]
    same = (values[:, None, :] == values[:, :, None]) & jnp.tri(values.shape[-1], k=-1, dtype=bool)
    return (higher | same).sum(-1)


def weighted_pair_loss(logits, lists: dict, scale: float, weights) -> Loss:
    """The logistic loss of all pairs of documents with different labels, each pair times its weight."""
    is_real, labels = lists["label_weights"] > 0, lists["labels"]
    ordered = (labels[:, :, None] > labels[:, None, :]) & is_real[:, :, None] & is_real[:, None, :]
    losses = jax.nn.softplus(-scale * (logits[:, :, None] - logits[:, None, :])) / jnp.log(2.0)
    return Loss(jnp.where(ordered, weights * losses, 0.0).sum(), ordered.sum().astype(jnp.float32))


def margin_mse(logits, lists: dict, scale: float) -> Loss:
    """The squared error of (logit of the first document - logit of each other) against the teacher's difference."""
    weights, scores = lists["label_weights"], lists["scores"]
    apart = scale * (logits[:, :1] - logits[:, 1:]) - (scores[:, :1] - scores[:, 1:])
    return weighted_loss(apart**2, weights[:, :1] * weights[:, 1:])


@dataclass(frozen=True)
class RankingLoss:
    compute: Callable[..., Loss]
    uses_teacher_scores: bool = False  # uses a teacher's scores
    ordered: bool = False  # compares the labels of the documents of a query
    scale: float = 1.0  # the default

    @property
    def name(self) -> str:
        return self.compute.__name__


RANKING_LOSSES = {
    "binary": RankingLoss(binary),
    "cross_entropy": RankingLoss(cross_entropy, ordered=True, scale=10.0),
    "list_net": RankingLoss(list_net, ordered=True),
    "rank_net": RankingLoss(rank_net, ordered=True),
    "lambda_rank": RankingLoss(lambda_rank, ordered=True),
    "margin_mse": RankingLoss(margin_mse, uses_teacher_scores=True),
    "teacher_ranking": RankingLoss(teacher_ranking, uses_teacher_scores=True),
}
