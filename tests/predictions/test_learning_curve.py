"""What as many labels again would bring, as a learning curve forecasts it."""

import numpy as np
import pytest

from bert_jax.metrics.classification import score_single_label
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.learning_curve import (
    NUM_PARTS,
    draw_variance,
    forecast_gain,
    forecast_learning_curve,
)

NAMES = ("no", "yes")


def law(labels, best=0.9, lack=2.0):
    """A score that lacks of the best as much as 1 / sqrt(labels) says."""
    return best - lack / np.sqrt(labels)


@pytest.mark.parametrize("labels", [40, 200, 20_000])
@pytest.mark.parametrize("best", [0.6, 0.9, 1.0])
def test_the_forecast_follows_its_law(labels, best):
    scores = [law(n, best) for n in (labels / NUM_PARTS, labels, 2 * labels)]
    assert forecast_gain(*map(np.array, scores[:2])) == pytest.approx(scores[2] - scores[1])


def test_what_fell_is_not_forecast_to_fall_on():
    assert forecast_gain(np.array(0.8), np.array(0.7)) == 0
    assert forecast_gain(np.array([0.8, 0.5]), np.array([0.7, 0.7])).shape == (2,)


# Of right and wrong rows


def rows_of(right: np.ndarray) -> ScoreSums:
    """Predictions of a class, of which these are right."""
    truth = ["yes" if i % 2 else "no" for i in range(len(right))]
    wrong = {"no": "yes", "yes": "no"}
    return score_single_label([t if r else wrong[t] for t, r in zip(truth, right, strict=True)], truth, NAMES)


def judged_by(*shares: tuple[float, ...], count: int = 400, seed: int = 0) -> dict[int, list[ScoreSums]]:
    """Scores with a quarter, half and all: each model is right on its share of the rows, the same ones first."""
    order = np.random.default_rng(seed).permutation(count)
    return {
        count // 2**n: [rows_of(order < round(share * count)) for share in models]
        for n, models in zip((2, 1, 0), shares, strict=True)
    }


def test_a_curve_tells_the_mean_scores_and_the_forecast():
    curve = forecast_learning_curve("accuracy", judged_by((0.6, 0.62, 0.58, 0.6), (0.7, 0.72), (0.8,)))
    assert curve.metric == "accuracy" and curve.labels == [100, 200, 400]
    assert curve.scores == pytest.approx([0.6, 0.71, 0.8])
    assert curve.gain == pytest.approx(forecast_gain(np.array(0.6), np.array(0.8)))
    assert curve.low < curve.gain < curve.high
    assert curve.high - curve.gain == pytest.approx(curve.gain - curve.low)


def test_no_score_above_1_is_forecast():
    perfect = forecast_learning_curve("accuracy", judged_by((0.6,) * 4, (0.9,) * 2, (1.0,)))
    assert perfect.gain == perfect.high == 0 > perfect.low
    nearly = forecast_learning_curve("accuracy", judged_by((0.6,) * 4, (0.9,) * 2, (0.98,)))
    assert nearly.high == pytest.approx(0.02)


def test_an_interval_is_narrower_where_more_is_known():
    def width(*shares, count=400):
        curve = forecast_learning_curve("accuracy", judged_by(*shares, count=count))
        return curve.high - curve.low

    even = width((0.6,) * 4, (0.7,) * 2, (0.8,))
    assert width((0.6,) * 4, (0.7,) * 2, (0.8,), count=4_000) < even, "more rows tell more"
    assert width((0.5, 0.7, 0.52, 0.68), (0.7,) * 2, (0.8,)) > even, "parts that differ tell of chance"
    assert width((0.6,) * 4, (0.65, 0.75), (0.8,)) > even


def test_the_chance_of_a_draw_is_that_of_the_means_of_parts():
    rng = np.random.default_rng(0)
    found = [
        draw_variance([rng.normal(0, 2, 4), rng.normal(0, 2**0.5, 2), rng.normal(0, 1, 1)])
        for _ in range(4_000)
    ]
    assert np.mean(found) == pytest.approx(1, rel=0.05)


# Of real probes
