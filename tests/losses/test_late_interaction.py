"""Losses of late interaction by themselves: padding, settings, equal texts and scaled scores."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from bert_jax.losses.late_interaction import (
    LATE_INTERACTION_LOSSES,
    LateInteractionLossSettings,
    TokenVectorBatch,
)

GROUPS, TEXTS, D = 5, 3, 8
SETTINGS = LateInteractionLossSettings(0.5, 0.0, False)


def random_batch() -> tuple[TokenVectorBatch, dict]:
    random = np.random.default_rng(0)
    queries, documents = random.normal(0, 1, (GROUPS, 4, D)), random.normal(0, 1, (GROUPS, TEXTS - 1, 6, D))
    masks = random.random((GROUPS, 4)) < 0.8, random.random((GROUPS, TEXTS - 1, 6)) < 0.8
    batch = {
        "ids": np.arange(GROUPS * TEXTS).reshape(GROUPS, TEXTS), "label_weights": np.ones(GROUPS, np.float32),
        "scores": random.uniform(0, 1, (GROUPS, TEXTS - 1)).astype(np.float32),
    }  # fmt: skip
    return TokenVectorBatch(
        queries.astype(np.float32), masks[0], documents.astype(np.float32), masks[1]
    ), batch


@partial(jax.jit, static_argnames=("name", "settings"))
def compute(name: str, tokens, batch: dict, settings: LateInteractionLossSettings):
    return LATE_INTERACTION_LOSSES[name].compute(tokens, batch, settings)


def by_hand(tokens: TokenVectorBatch) -> np.ndarray:
    """The scores of each query for the documents of each group, [N, N, T - 1]."""
    products = np.einsum("qsd,ncld->qncsl", tokens.queries, tokens.documents)
    products = np.where(tokens.document_mask[None, :, :, None], products, -np.inf)
    return (products.max(-1) * tokens.query_mask[:, None, None]).sum(-1)


@pytest.mark.parametrize("name", LATE_INTERACTION_LOSSES)
def test_groups_that_are_padding_say_nothing(name):
    tokens, batch = random_batch()
    more = jax.tree.map(lambda x: np.concatenate([x, np.zeros_like(x[:2])]), (tokens, batch))

    def of(vectors, tokens, batch):
        tokens = tokens._replace(queries=vectors[0], documents=vectors[1])
        return LATE_INTERACTION_LOSSES[name].compute(tokens, batch, SETTINGS).mean

    slope = jax.jit(jax.value_and_grad(of))
    value, slopes = jax.device_get(slope((tokens.queries, tokens.documents), tokens, batch))
    padded, its_slopes = jax.device_get(slope((more[0].queries, more[0].documents), *more))
    assert float(padded) == pytest.approx(float(value), rel=1e-6)
    for ours, expected in zip(its_slopes, slopes, strict=True):
        np.testing.assert_allclose(ours[:-2], expected, atol=1e-6)
        assert not ours[-2:].any()


@pytest.mark.parametrize("name", LATE_INTERACTION_LOSSES)
def test_a_loss_reads_the_settings_that_it_names(name):
    tokens, batch = random_batch()
    changes = {"scale": 3.0, "margin": 1.5, "symmetric": True, "normalize_scores": True}
    before = float(compute(name, tokens, batch, SETTINGS).mean)
    changed = {
        key
        for key, to in changes.items()
        if float(compute(name, tokens, batch, replace(SETTINGS, **{key: to})).mean) != before
    }
    assert changed == set(LATE_INTERACTION_LOSSES[name].reads)
    mean = replace(SETTINGS, mean=True)
    assert float(compute(name, tokens, batch, mean).mean) != before


def test_equal_texts_are_no_negatives_of_one_another():
    tokens, batch = random_batch()
    scores = SETTINGS.scale * by_hand(tokens)

    def expected(masked):
        total = 0.0
        for n in range(GROUPS):
            kept = [
                scores[n, m, c] for m in range(GROUPS) for c in range(TEXTS - 1) if (n, m, c) not in masked
            ]
            total += np.log(np.exp(kept).sum()) - scores[n, n, 0]
        return total / GROUPS

    def of(ids):
        return float(compute("multiple_negatives", tokens, batch | {"ids": ids}, SETTINGS).mean)

    assert of(batch["ids"]) == pytest.approx(expected(set()), rel=1e-5)
    same = batch["ids"].copy()
    same[4, 1], same[2, 2] = same[1, 1], same[0, 1]
    masked = {(1, 4, 0), (4, 1, 0), (0, 2, 1)}
    assert of(same) == pytest.approx(expected(masked), rel=1e-5) != expected(set())


def test_scores_are_scaled_as_pylate_scales_them():
    tokens, batch = random_batch()
    scores = by_hand(tokens)[np.arange(GROUPS), np.arange(GROUPS)]
    scores = (scores - scores.min(1, keepdims=True)) / (np.ptp(scores, axis=1, keepdims=True) + 1e-8)
    logs = [x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (scores, batch["scores"])]
    wanted = (np.exp(logs[1]) * (logs[1] - logs[0])).sum(1).mean()
    settings = replace(SETTINGS, scale=1.0, normalize_scores=True)
    assert float(compute("teacher_ranking", tokens, batch, settings).mean) == pytest.approx(wanted, rel=1e-5)
