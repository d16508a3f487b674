"""Intervals of scores, against the metrics themselves and against simulations."""

import numpy as np
import pytest

from bert_jax.metrics.intervals import RESAMPLES, bootstrap_intervals, difference_intervals
from bert_jax.predictions.kind import Outcomes
from tests.support.made_up_outcomes import make_outcomes, many_class_outcomes


@pytest.mark.parametrize("kind", ["classes", "labels", "tags", "answers", "all answered", "number"])
def test_the_scores_of_sums_are_the_metrics(kind):
    given = make_outcomes(kind)
    found, expected = bootstrap_intervals(given.score_sums), given.score_sums.scores
    assert {name: one.value for name, one in found.items()} == pytest.approx(expected)
    assert all(one.low < one.value < one.high for one in found.values())
    same = difference_intervals(given.score_sums, given.score_sums)
    assert {(one.value, one.low, one.high) for one in same.values()} == {(0, 0, 0)}
    if kind != "number":
        return
    # Of rank correlations, too, what a resample gives is nearly what ranking it anew gives.
    rng, again = np.random.default_rng(5), []
    for _ in range(400):
        i = rng.integers(0, 60, 60)
        x, y = (np.argsort(np.argsort(np.array(v)[i] + 1e-9 * i)) for v in (given.predictions, given.truth))
        again.append(np.corrcoef(x, y)[0, 1])
    assert np.std(again) == pytest.approx((found["spearman"].high - found["spearman"].low) / 3.92, rel=0.25)


def part(given: Outcomes, kept: slice) -> Outcomes:
    return Outcomes(given.kind, given.examples[kept], given.raw_outputs[kept])


@pytest.mark.slow
def test_the_interval_of_f1_macro_holds_the_true_score_many_class_outcomes(monkeypatch):
    monkeypatch.setattr("bert_jax.metrics.intervals.RESAMPLES", 300)
    whole = many_class_outcomes(15_000)
    truth = whole.score_sums.scores["f1_macro"]
    found = [
        bootstrap_intervals(part(whole, slice(240 * n, 240 * (n + 1))).score_sums, seed=n)["f1_macro"]
        for n in range(30)
    ]
    # The quantiles of the resamples alone hold it in about half of them.
    assert sum(one.low <= truth <= one.high for one in found) >= 26
    biased, corrected = (
        np.mean(side) for side in zip(*((x.value, (x.low + x.high) / 2) for x in found), strict=True)
    )
    assert truth - biased > 0.01 and abs(truth - corrected) < (truth - biased) / 2


def test_the_interval_of_a_share_is_that_of_its_binomial():
    given = make_outcomes("classes", 400)
    found = bootstrap_intervals(given.score_sums)["accuracy"]
    error = (found.value * (1 - found.value) / 400) ** 0.5
    edges = found.value - 1.96 * error, found.value + 1.96 * error
    assert (found.low, found.high) == pytest.approx(edges, abs=1 / 400)  # to one example
    sure = bootstrap_intervals(make_outcomes("classes", 50, skill=20).score_sums)["accuracy"]
    # With this many errors or more, 50 of 50 are right in 2.5 % of all cases.
    assert (sure.value, sure.high) == (1, 1) and sure.low == pytest.approx(0.025 ** (1 / 50), abs=0.01)
    right = next(n for n in range(400) if given.predictions[n] == given.truth[n])
    alone = bootstrap_intervals(part(given, slice(right, right + 1)).score_sums)["accuracy"]
    assert alone.low < 0.25 and alone.value == alone.high == 1
    same = difference_intervals(given.score_sums, given.score_sums)["accuracy"]
    assert (same.low, same.high) == (0, 0)


@pytest.mark.slow
def test_intervals_hold_the_true_score_as_often_as_they_say():
    whole, held = (
        make_outcomes("classes", 30_000, seed=7, skill=1.0),
        {"accuracy": 0, "f1_macro": 0, "matthews": 0},
    )
    truth = whole.score_sums.scores
    for n in range(150):
        found = bootstrap_intervals(part(whole, slice(200 * n, 200 * (n + 1))).score_sums, seed=n)
        for name in held:
            held[name] += found[name].low <= truth[name] <= found[name].high
    for name, count in held.items():
        assert 0.89 <= count / 150 <= 0.99, name  # 0.95, and four standard errors of 150 draws
    assert RESAMPLES >= 1000


def test_a_pair_of_models_is_judged_on_the_same_resamples():
    a, b = make_outcomes("classes", 400), make_outcomes("classes", 400)
    for i in range(0, 400, 40):  # ten that b has right and a may not
        b.raw_outputs[i] = 9 * np.eye(3)[b.kind.labels.index(b.truth[i])]
    apart, alone = (
        difference_intervals(a.score_sums, b.score_sums)["accuracy"],
        bootstrap_intervals(a.score_sums)["accuracy"],
    )
    assert apart.value == pytest.approx(b.score_sums.scores["accuracy"] - a.score_sums.scores["accuracy"])
    assert apart.low >= 0 and apart.high - apart.low < (alone.high - alone.low) / 2
