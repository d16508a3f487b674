"""What a guaranteed precision is worth, over many simulated data sets whose true precision is known.

A text has features, from which both its true class is drawn and a model learns: least squares, solved for all data
sets at once. Its calibration is that of `kinds/classes.py`.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from bert_jax.predictions.calibration import Calibration, sigmoid
from bert_jax.predictions.calibration_fitting import document_folds
from bert_jax.predictions.kinds import classes
from bert_jax.predictions.selective import (
    LEVELS,
    RISK,
    binomial_p_value,
    lowest_threshold,
    significance_of_each,
)

FEATURES = 8
FRESH = 2000  # texts that tell the true precision


@dataclass
class Texts:
    """Of many data sets at once: features [sets, texts, FEATURES], and how likely the second class is."""

    features: np.ndarray
    likely: np.ndarray
    truth: np.ndarray

    @classmethod
    def drawn(cls, rng, sets: int, texts: int, sharpness: float) -> "Texts":
        features = rng.normal(size=(sets, texts, FEATURES))
        likely = sigmoid(sharpness * features[..., 0])
        return cls(features, likely, rng.random(likely.shape) < likely)

    def shard(self, rows) -> "Texts":
        return Texts(self.features[:, rows], self.likely[:, rows], self.truth[:, rows])

    def model(self) -> np.ndarray:
        """Weights [sets, FEATURES, 1] whose logits are too high, as those of a model that trained for long."""
        transposed = self.features.swapaxes(1, 2)
        wanted = transposed @ (2.0 * self.truth - 1)[..., None]
        return 6 * np.linalg.solve(transposed @ self.features + np.eye(FEATURES), wanted)

    def logits(self, model: np.ndarray) -> np.ndarray:
        return (self.features @ model)[..., 0]


def of_a_kept_part(texts: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(model, logits, truth): a model that learnt half of the texts, and its logits of the others."""
    count = texts.truth.shape[1] // 2
    rest = texts.shard(slice(count, None))
    model = texts.shard(slice(count)).model()
    return model, rest.logits(model), rest.truth


def out_of_fold(texts: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(model, logits, truth): a model that learnt all texts, and the logits of those that learnt the other folds."""
    logits, everything = np.zeros(texts.truth.shape), np.arange(texts.truth.shape[1])
    for part in document_folds([f"text {n}" for n in everything]):
        model = texts.shard(np.setdiff1d(everything, part)).model()
        logits[:, part] = texts.shard(part).logits(model)
    return texts.model(), logits, texts.truth


def fitted(logits: np.ndarray, truth: np.ndarray) -> Calibration:
    names = [f"text {n}" for n in range(len(truth))]
    return classes.fit_class_calibration(np.stack([-logits, logits], 1) / 2, truth.astype(int), "ab", names)


@dataclass
class Kept:
    """Of each data set: whether the precision was below the promised one, and the share of texts that are answered."""

    broken: list[bool]
    answered: list[float]

    def add(self, right: np.ndarray, kept: np.ndarray, precision: float):
        self.broken.append(bool(kept.any() and right[kept].mean() < precision))
        self.answered.append(float(kept.mean()))

    @property
    def is_held(self) -> bool:
        """Whether no more are broken than chance explains: a binomial test of one side at 1 %."""
        return stats.binom.sf(sum(self.broken) - 1, len(self.broken), RISK) > 0.01


def simulated(arranged, sets: int, texts: int, sharpness: float, precision: float) -> Kept:
    rng = np.random.default_rng(texts)
    model, logits, truth = arranged(Texts.drawn(rng, sets, texts, sharpness))
    fresh, kept = Texts.drawn(rng, 1, FRESH, sharpness), Kept([], [])
    for n in range(sets):
        odds = fresh.logits(model[n])[0]
        right = np.where(odds > 0, fresh.likely[0], 1 - fresh.likely[0])
        found = fitted(logits[n], truth[n])
        confidence = found.probabilities(np.stack([-odds, odds], 1) / 2).max(-1)
        enough = lowest_threshold(found.levels, precision)
        kept.add(right, confidence >= (2 if enough is None else enough), precision)
    return kept


@pytest.mark.slow
def test_the_risk_is_that_of_a_walk_as_right_as_promised():
    rng = np.random.default_rng(0)
    for texts, precision in ((60, 0.8), (200, 0.95), (400, 0.9)):
        counts = np.arange(1, LEVELS + 1) * texts // LEVELS
        right = np.cumsum(rng.random((20_000, texts)) < precision, 1)[:, counts - 1]
        significance = significance_of_each(tuple(counts.tolist()), precision)
        broken = (binomial_p_value(counts, right, precision) <= significance).any(1).mean()
        assert 0.5 * RISK < broken < RISK + 0.0036, "the standard error is 0.0015"
        assert significance > 2 * RISK / LEVELS, "levels share predictions, so each gets more than its part"


@pytest.mark.slow
@pytest.mark.parametrize("arranged", [of_a_kept_part, out_of_fold])
def test_a_promise_is_held_on_fresh_texts(arranged):
    kept = simulated(arranged, sets=40, texts=200, sharpness=5, precision=0.9)
    assert kept.is_held and np.mean(kept.answered) > 0.3


@pytest.mark.slow
def test_a_promise_for_one_label_is_held_on_fresh_texts_and_finds_what_it_says():
    rng = np.random.default_rng(1)
    model, logits, truth = out_of_fold(Texts.drawn(rng, 40, 300, 5))
    fresh, promised, recalls = Texts.drawn(rng, 1, FRESH, 5), Kept([], []), []
    for n in range(40):
        found, odds = fitted(logits[n], truth[n]), fresh.logits(model[n])[0]
        enough = found.label_threshold("b", 0.9)
        kept = (odds > 0) & (sigmoid(odds / found.temperatures[0]) >= enough)
        promised.add(fresh.likely[0], kept, 0.9)
        here = fresh.likely[0][kept].sum() / fresh.likely[0].sum()
        recalls.append((here, found.levels_of("b").recall_from(enough)))
    here, output = np.mean(recalls, 0)
    assert promised.is_held and output > 0.5 and abs(here - output) < 0.04


@pytest.mark.slow
def test_a_classifier_that_is_99_percent_right_promises_095_of_200_texts():
    rng, promised = np.random.default_rng(0), Kept([], [])
    for _ in range(40):
        odds = rng.choice([-1, 1], FRESH + 200) * rng.normal(7, 2.3, FRESH + 200)
        truth = rng.random(len(odds)) < sigmoid(odds)
        found = fitted(odds[:200], truth[:200])
        enough = lowest_threshold(found.levels, 0.95)
        kept = sigmoid(np.abs(odds[200:]) / found.temperatures[0]) >= (2 if enough is None else enough)
        promised.add(sigmoid(np.abs(odds[200:])), kept, 0.95)
    accuracy = sigmoid(np.abs(odds)).mean()
    assert 0.985 < accuracy < 0.995
    assert np.mean(np.array(promised.answered) > 0) >= 0.9 and promised.is_held


@pytest.mark.long
@pytest.mark.parametrize("arranged", [of_a_kept_part, out_of_fold])
@pytest.mark.parametrize("texts", [100, 300, 800])
@pytest.mark.parametrize("precision", [0.8, 0.9, 0.95])
def test_a_promise_is_held_in_500_data_sets(arranged, texts, precision):
    assert simulated(arranged, 500, texts, sharpness=3, precision=precision).is_held
