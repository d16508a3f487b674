"""Losses of embeddings: from the vectors of groups of texts to one number for the whole batch.

A group [T, D] is an anchor, a positive and perhaps negatives, or two texts with a score. Besides the vectors [N, T, D],
a batch holds `label_weights [N]`, 0 for groups that are padding; `ids [N, T]`, equal for equal texts; `scores [N, S]`;
`teacher [N, K, E]`, the vectors of the first K texts by another embedder; and `scale [N]` if the scale is learnt.

Each loss equals the one of the same name in sentence-transformers, except that a text equal to the anchor or to its
positive, or the positive of an equal anchor, is never used as a negative.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from bert_jax.losses.loss import Loss, kl_divergence, weighted_loss
from bert_jax.models.pooling import l2_normalize

BLOCK = 1024  # anchors whose scores are in memory at once
NEVER = -1e30  # the score of a text that is not a candidate


@dataclass(frozen=True)
class EmbeddingLossSettings:
    scale: float  # of similarities
    margin: float
    symmetric: bool
    dot: bool = False  # whether the in-batch losses compare by inner products, not by cosines


def multiple_negatives(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """Cross-entropy of finding each anchor's positive among the positives and negatives of all groups.

    If `symmetric`, average it with the loss of finding each positive's anchor among all anchors."""
    scale, vectors = scales(batch, s), compared(vectors, s)
    there = info_nce(all_products(vectors[:, 0], vectors[:, 1:]), batch, scale, (0, 1))
    if not s.symmetric:
        return there
    back = info_nce(all_products(vectors[:, 1], vectors[:, :1]), batch, scale, (1, 0), 1)
    return Loss((there.total + back.total) / 2, there.weight)


def compared(vectors, s: EmbeddingLossSettings):
    """The vectors whose inner products are the similarities."""
    return vectors if s.dot else l2_normalize(vectors)


def scales(batch: dict, s: EmbeddingLossSettings):
    """The factor [N] by which the similarities of each anchor are multiplied."""
    return jnp.broadcast_to(batch.get("scale", s.scale), batch["label_weights"].shape)


def all_products(anchors, candidates) -> Callable:
    """Return a function of rows: the inner products [R, C N] of these of the anchors [N, D] with the candidates of all
    groups [N, C, D], the first ones of all groups first."""
    others = jnp.moveaxis(candidates, 1, 0).reshape(-1, candidates.shape[-1])
    return lambda rows: anchors[rows] @ others.T


def info_nce(
    products: Callable, batch: dict, scale, columns: tuple[int, int], candidates: int | None = None
) -> Loss:
    """Cross-entropy of finding each anchor's right candidate among the candidates of all groups.

    `products` are as of `all_products`; the first candidate of a group is the right one. `columns` are the columns of
    `ids` that belong to the anchors and to the right candidates; the `candidates` of a group, by default all texts but
    the anchor, begin with the latter."""
    is_real, ids = batch["label_weights"] > 0, batch["ids"]
    count, per_group = len(ids), candidates or ids.shape[1] - 1
    anchor_ids, right_ids = ids[:, columns[0]], ids[:, columns[1]]
    first = columns[1]
    other_ids = jnp.moveaxis(ids[:, first : first + per_group], 1, 0).reshape(-1)
    group = jnp.tile(jnp.arange(count), per_group)
    is_right = jnp.arange(len(group)) < count

    def block_losses(rows):
        scores = scale[rows][:, None] * products(rows)
        # Not a negative: a text equal to the anchor or to its right candidate, and the right candidate of an equal
        # anchor.
        are_equal = (other_ids == right_ids[rows][:, None]) | (other_ids == anchor_ids[rows][:, None])
        are_equal |= is_right & (anchor_ids[group] == anchor_ids[rows][:, None])
        paired = (group == rows[:, None]) & is_right
        scores = jnp.where((paired | ~are_equal) & is_real[group], scores, NEVER)
        return jax.nn.logsumexp(scores, -1) - jnp.where(paired, scores, 0).sum(-1)

    return weighted_loss(map_blocks(block_losses, jnp.arange(count)), is_real)


def guided(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """Like `multiple_negatives` with more negatives: other anchors, and for each positive the other positives (GIST).

    A text is not used as a negative if the teacher's cosine for it is above that of the positive minus the margin."""
    is_real, ids = batch["label_weights"] > 0, batch["ids"]
    count, texts = ids.shape
    student_vectors, guide_vectors = compared(vectors, s), l2_normalize(batch["teacher"])
    scale = scales(batch, s)
    group = jnp.tile(jnp.arange(count), texts + 1)
    other_ids = jnp.append(ids.T.reshape(-1), ids[:, 1])
    is_right = (jnp.arange(len(group)) // count) == 1

    def products_of(v, rows):
        """Inner products of anchors with all texts, and of positives with all positives: [R, (T + 1) N]."""
        all_texts = jnp.moveaxis(v, 1, 0).reshape(count * texts, -1)
        return jnp.concatenate([v[rows, 0] @ all_texts.T, v[rows, 1] @ v[:, 1].T], 1)

    def block_losses(rows):
        wanted = (guide_vectors[rows, 0] * guide_vectors[rows, 1]).sum(-1) - s.margin
        are_equal = (other_ids == ids[rows, 0][:, None]) | (other_ids == ids[rows, 1][:, None])
        are_equal |= is_right & (ids[group, 0] == ids[rows, 0][:, None])
        are_equal |= products_of(guide_vectors, rows) > wanted[:, None]
        paired = (group == rows[:, None]) & is_right
        scores = scale[rows][:, None] * products_of(student_vectors, rows)
        scores = jnp.where((paired | ~are_equal) & is_real[group], scores, NEVER)
        return jax.nn.logsumexp(scores, -1) - jnp.where(paired, scores, 0).sum(-1)

    return weighted_loss(map_blocks(block_losses, jnp.arange(count)), is_real)


def false_negatives(batch: dict) -> Loss:
    """The mean number, per anchor, of other groups with an equal anchor or positive, whose positives are not used as
    negatives."""
    is_real, ids = batch["label_weights"] > 0, batch["ids"]

    def block_counts(rows):
        are_equal = (ids[:, 1] == ids[rows, 1][:, None]) | (ids[:, 0] == ids[rows, 0][:, None])
        return (are_equal & is_real & (jnp.arange(len(ids)) != rows[:, None])).sum(-1).astype(jnp.float32)

    return weighted_loss(map_blocks(block_counts, jnp.arange(len(ids))), is_real)


def map_blocks(function: Callable, rows):
    """Apply the function to BLOCK rows at a time to limit memory; the backward pass computes each block again."""
    if len(rows) <= BLOCK:
        return function(rows)
    function, whole = jax.checkpoint(function), len(rows) - len(rows) % BLOCK
    blocks = jax.lax.map(function, rows[:whole].reshape(-1, BLOCK)).reshape(-1)
    return jnp.append(blocks, function(rows[whole:])) if whole < len(rows) else blocks


def cosent(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """Of any two pairs, the one with the higher score should have the higher cosine."""
    return score_order_loss(pair_cosines(vectors), batch, s.scale)


def angle(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """Like `cosent`, with the angle between the two vectors taken as complex numbers, which does not saturate."""
    (a, b), (c, d) = (jnp.split(vectors[:, n], 2, axis=-1) for n in range(2))
    size = (c**2 + d**2).sum(-1, keepdims=True)
    real, imaginary = (a * c + b * d) / size, (b * c - a * d) / size
    ratio = jnp.sqrt((a**2 + b**2).sum(-1, keepdims=True) / size)
    return score_order_loss(jnp.abs(((real + imaginary) / ratio).sum(-1)), batch, s.scale)


def score_order_loss(values, batch: dict, scale: float) -> Loss:
    """Penalize every two pairs whose `values` are not in the order of their scores."""
    is_real, scores = batch["label_weights"] > 0, batch["scores"][:, 0]
    wrong = scale * (values[:, None] - values)  # [lower, higher]
    ordered = (scores[:, None] < scores) & is_real[:, None] & is_real
    wrong = jnp.where(ordered, wrong, NEVER).reshape(-1)
    return Loss(jax.nn.logsumexp(jnp.append(wrong, 0.0)), jnp.float32(1))


def cosine(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """The squared error between cosine and score."""
    return weighted_loss((pair_cosines(vectors) - batch["scores"][:, 0]) ** 2, batch["label_weights"])


def contrastive(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """Pull pairs with a score of 1 together, and push pairs with a score of 0 apart, up to a distance of the margin."""
    apart, same = 1 - pair_cosines(vectors), batch["scores"][:, 0]
    errors = same * apart**2 + (1 - same) * jax.nn.relu(s.margin - apart) ** 2
    return weighted_loss(errors / 2, batch["label_weights"])


def triplet(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """The anchor should be nearer to its positive than to each negative, by at least the margin."""
    near = euclidean_distances(vectors[:, 0], vectors[:, 1])
    far = euclidean_distances(vectors[:, :1], vectors[:, 2:])
    return weighted_loss(jax.nn.relu(near[:, None] - far + s.margin).mean(-1), batch["label_weights"])


def margin_mse(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """The squared error of (inner product with the positive - with each negative) against the teacher's difference."""
    return margin_error(inner_products(vectors), batch)


def margin_error(products, batch: dict) -> Loss:
    """The same from the products [N, T - 1] of anchors with the other texts of their groups."""
    wanted = batch["scores"]
    if wanted.shape[1] == products.shape[1]:  # the scores themselves, not yet their differences
        wanted = wanted[:, :1] - wanted[:, 1:]
    return weighted_loss(((products[:, :1] - products[:, 1:] - wanted) ** 2).mean(-1), batch["label_weights"])


def teacher_ranking(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """The KL divergence of the softmax over a group's inner products from the softmax over a teacher's scores."""
    return ranking_divergence(inner_products(vectors), batch["scores"], batch)


def ranking_divergence(products, wanted, batch: dict) -> Loss:
    """The same from the products [N, T - 1] and the teacher's scores of the same size."""
    divergences = kl_divergence(jax.nn.log_softmax(products), jax.nn.log_softmax(wanted))
    return weighted_loss(divergences, batch["label_weights"])


def teacher_vectors(vectors, batch: dict, s: EmbeddingLossSettings) -> Loss:
    """The squared error of the vectors of both texts against the teacher's vector of the first text."""
    return weighted_loss(((vectors - batch["teacher"]) ** 2).mean((-2, -1)), batch["label_weights"])


def pair_cosines(vectors):
    return (l2_normalize(vectors[:, 0]) * l2_normalize(vectors[:, 1])).sum(-1)


def inner_products(vectors):
    """The inner products [N, T - 1] of each anchor with the other texts of its group."""
    return jnp.einsum("nd,ntd->nt", vectors[:, 0], vectors[:, 1:])


def euclidean_distances(a, b):
    return jnp.sqrt(((a - b + 1e-6) ** 2).sum(-1))


def pair_scores(texts: int, scores: int) -> bool:
    return texts == 2 and scores == 1


@dataclass(frozen=True)
class EmbeddingLoss:
    compute: Callable[..., Loss]
    # numbers of texts and scores -> whether it can use them
    fits: Callable[[int, int], bool] = lambda texts, scores: texts >= 2
    reads: tuple[str, ...] = ()  # the settings that it uses
    in_batch: bool = False  # the texts of other groups are negatives; the scale may be learnt
    scored: bool = False  # uses scores
    ordered: bool = False  # compares the scores of different groups
    teacher_texts: int = 0  # uses a teacher's vectors of this many leading texts; -1: of all texts
    full_vectors: bool = False  # compares whole vectors with the teacher's
    even: bool = False  # needs an even number of dimensions
    scale: float = 1.0  # the default
    margin: float = 0.0  # the default

    @property
    def name(self) -> str:
        return self.compute.__name__


EMBEDDING_LOSSES = {
    "multiple_negatives": EmbeddingLoss(
        multiple_negatives, reads=("scale", "symmetric"), in_batch=True, scale=20.0
    ),
    "guided": EmbeddingLoss(guided, reads=("scale", "margin"), in_batch=True, teacher_texts=-1, scale=100.0),
    "triplet": EmbeddingLoss(triplet, lambda texts, scores: texts >= 3, reads=("margin",), margin=5.0),
    "cosent": EmbeddingLoss(cosent, pair_scores, reads=("scale",), scored=True, ordered=True, scale=20.0),
    "angle": EmbeddingLoss(
        angle, pair_scores, reads=("scale",), scored=True, ordered=True, even=True, scale=20.0
    ),
    "cosine": EmbeddingLoss(cosine, pair_scores, scored=True),
    "contrastive": EmbeddingLoss(contrastive, pair_scores, reads=("margin",), scored=True, margin=0.5),
    # Scores of every text after the anchor, or the differences between the positive and each negative.
    "margin_mse": EmbeddingLoss(
        margin_mse, lambda texts, scores: texts >= 3 and scores in (texts - 1, texts - 2), scored=True
    ),
    "teacher_ranking": EmbeddingLoss(
        teacher_ranking, lambda texts, scores: texts >= 3 and scores == texts - 1, scored=True
    ),
    "teacher_vectors": EmbeddingLoss(
        teacher_vectors, lambda texts, scores: texts == 2, teacher_texts=1, full_vectors=True
    ),
}


def matryoshka_loss(compute: Callable[..., Loss], sizes: tuple[int, ...]) -> Callable[..., Loss]:
    """Sum the loss over the sizes, with vectors truncated to each size and scaled to length 1 (Matryoshka)."""

    def summed(vectors, batch: dict, settings: EmbeddingLossSettings) -> Loss:
        losses = [compute(l2_normalize(vectors[..., :size]), batch, settings) for size in sizes]
        return Loss(jnp.stack([loss.total for loss in losses]).sum(), losses[0].weight)

    return summed if sizes else compute
