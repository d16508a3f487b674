"""Losses of embeddings by themselves: padding, settings, equal texts and blocks."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.losses import embedding
from bert_jax.losses.embedding import (
    EMBEDDING_LOSSES,
    EmbeddingLossSettings,
    false_negatives,
)

GROUPS, WIDTH = 6, 16


def batch_of(texts: int, scores: np.ndarray, seed: int = 0):
    random = np.random.default_rng(seed)
    vectors, teacher = random.normal(0, 1, (2, GROUPS, texts, WIDTH)).astype(np.float32)
    ids = np.arange(GROUPS * texts).reshape(GROUPS, texts)
    # The teacher finds the positive near, so that some of the others are negatives.
    teacher[:, 1] += 0.3 * teacher[:, 0]
    beside = {"scores": scores, "teacher": teacher}
    return vectors, {"ids": ids, "label_weights": np.ones(GROUPS, np.float32)} | beside


@partial(jax.jit, static_argnames=("name", "settings"))
def compute(name: str, vectors, batch: dict, settings: EmbeddingLossSettings):
    return EMBEDDING_LOSSES[name].compute(vectors, batch, settings)


def scores_of(columns: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 1, (GROUPS, columns)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", EMBEDDING_LOSSES)
def test_groups_that_are_padding_say_nothing(name):
    loss = EMBEDDING_LOSSES[name]
    shapes = [(texts, scores) for texts in (2, 3) for scores in (1, 2) if loss.fits(texts, scores)]
    vectors, batch = batch_of(shapes[0][0], scores_of(shapes[0][1]))
    settings = EmbeddingLossSettings(loss.scale, loss.margin, False)
    padded = {key: np.concatenate([x, np.zeros_like(x[:2])]) for key, x in batch.items()}
    more = np.concatenate([vectors, np.ones_like(vectors[:2])])

    of = jax.jit(jax.value_and_grad(lambda vectors, batch: loss.compute(vectors, batch, settings).mean))
    value, slope = jax.device_get(of(vectors, batch))
    with_padding, its_slope = jax.device_get(of(more, padded))
    assert float(with_padding) == pytest.approx(float(value), rel=1e-6)
    np.testing.assert_allclose(its_slope[:-2], slope, atol=1e-6)
    assert not its_slope[-2:].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", EMBEDDING_LOSSES)
def test_a_loss_reads_the_settings_that_it_names(name):
    loss = EMBEDDING_LOSSES[name]
    shapes = [(texts, scores) for texts in (2, 3) for scores in (1, 2) if loss.fits(texts, scores)]
    vectors, batch = batch_of(shapes[0][0], scores_of(shapes[0][1]))
    settings, changes = (
        EmbeddingLossSettings(5.0, 0.3, False),
        {"scale": 9.0, "margin": 1.5, "symmetric": True},
    )

    def value(settings: EmbeddingLossSettings) -> float:
        return float(compute(name, vectors, batch, settings).mean)

    before = value(settings)
    changed = {key for key, to in changes.items() if value(replace(settings, **{key: to})) != before}
    assert changed == set(loss.reads)


@pytest.mark.slow
def test_a_learnt_scale_is_that_of_each_anchor():
    vectors, batch = batch_of(3, scores_of(1))
    for name in ("multiple_negatives", "guided"):
        fixed = compute(name, vectors, batch, EmbeddingLossSettings(13.0, 0.0, True))
        scaled = batch | {"scale": np.full(GROUPS, 13.0)}
        learnt = compute(name, vectors, scaled, EmbeddingLossSettings(20.0, 0.0, True))
        assert float(learnt.total) == pytest.approx(float(fixed.total), rel=1e-6)


def test_equal_texts_are_no_negatives_of_one_another():
    vectors, batch = batch_of(3, scores_of(1))
    settings = EmbeddingLossSettings(20.0, 0.0, False)

    def loss_of(ids):
        return float(compute("multiple_negatives", vectors, batch | {"ids": ids}, settings).mean)

    def by_hand(masked):
        unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
        total = 0.0
        for n in range(GROUPS):
            logits = {(m, t): 20 * unit[n, 0] @ unit[m, t] for m in range(GROUPS) for t in (1, 2)}
            kept = [logit for place, logit in logits.items() if (n, *place) not in masked]
            total += np.log(np.exp(kept).sum()) - logits[n, 1]
        return total / GROUPS

    apart = batch["ids"]
    assert loss_of(apart) == pytest.approx(by_hand(set()), rel=1e-5)
    same_positive = apart.copy()
    same_positive[4, 1] = apart[1, 1]
    assert loss_of(same_positive) == pytest.approx(by_hand({(1, 4, 1), (4, 1, 1)}), rel=1e-5)
    same_anchor = apart.copy()
    same_anchor[2, 0] = apart[0, 0]
    assert loss_of(same_anchor) == pytest.approx(by_hand({(0, 2, 1), (2, 0, 1)}), rel=1e-5)
    negative_is_right = apart.copy()
    negative_is_right[3, 2] = apart[5, 1]
    assert loss_of(negative_is_right) == pytest.approx(by_hand({(5, 3, 2)}), rel=1e-5)
    for ids, count in ((apart, 0), (same_positive, 2), (same_anchor, 2)):
        assert float(false_negatives(batch | {"ids": ids}).total) == count


@pytest.mark.slow
def test_scores_in_blocks_are_those_at_once(monkeypatch):
    vectors, batch = batch_of(3, scores_of(1))
    settings, batch = EmbeddingLossSettings(20.0, 0.0, True), jax.tree.map(jnp.asarray, batch)
    loss = EMBEDDING_LOSSES["multiple_negatives"]

    def of(v):
        return jax.jit(jax.value_and_grad(lambda v: loss.compute(v, batch, settings).mean))(v)

    at_once, slope = of(vectors)
    for size in (2, 4):  # the second leaves a smaller block at the end
        monkeypatch.setattr(embedding, "BLOCK", size)
        in_blocks, its_slope = of(vectors)
        assert float(in_blocks) == pytest.approx(float(at_once), rel=1e-6)
        np.testing.assert_allclose(its_slope, slope, atol=1e-6)


def test_no_block_has_more_rows_than_one(monkeypatch):
    monkeypatch.setattr(embedding, "BLOCK", 4)
    sizes = []
    doubled = embedding.map_blocks(lambda rows: sizes.append(len(rows)) or 2 * rows, jnp.arange(6))
    assert sizes == [4, 2] and doubled.tolist() == [0, 2, 4, 6, 8, 10]
