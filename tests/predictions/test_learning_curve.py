"""What as many labels again would bring, as a learning curve forecasts it, and how often its interval is right."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import EncodedExample
from bert_jax.data.examples.split import assign_folds
from bert_jax.finetuning.cross_validation import Folds
from bert_jax.finetuning.finetune_data import PredictionEvaluator
from bert_jax.metrics.classification import score_single_label
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.kind import TextWindows
from bert_jax.predictions.kinds.classes import Classes
from bert_jax.predictions.learning_curve import (
    NUM_PARTS,
    LearningCurve,
    draw_variance,
    forecast_gain,
    forecast_learning_curve,
)
from bert_jax.predictions.linear_model import LinearModel, Units, fit_linear_model
from bert_jax.text.tokenizer import Encoding

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
    other = forecast_learning_curve("f1_macro", judged_by((0.6,) * 4, (0.7,) * 2, (0.8,)))
    assert other.gain == pytest.approx(curve.gain, abs=0.01)


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


class Cached:
    """Features that are there already, in place of an encoder's; they are what Folds asks of tasks.probe.Features."""

    def __init__(self, x: np.ndarray, y: np.ndarray):
        self.states, self.y = x, y

    def fit_probe(self, link, class_weights, kept, strongest=0) -> LinearModel:
        x = self.states[kept].astype(np.float64)
        return fit_linear_model(
            Units(x, np.eye(len(NAMES))[self.y[kept]], np.ones(len(kept)), np.array(kept)), link, strongest
        )


def parts_of(y: np.ndarray, count: int = 5) -> Folds:
    """The folds of a run on such labels, without a run."""
    examples = [Example(f"text {i}", NAMES[label], f"row {i}") for i, label in enumerate(y)]
    parts, kind = object.__new__(Folds), Classes(NAMES)
    parts.task = SimpleNamespace(kind=kind, class_weights=())
    parts.config = SimpleNamespace(data=SimpleNamespace(folds=count))
    one = Encoding([1], [0], [(0, 0)])
    parts.evaluator = PredictionEvaluator(kind, examples, [TextWindows([one])] * len(examples))
    parts.pieces = [
        EncodedExample(one, i, {"labels": label, "label_weights": 1.0}) for i, label in enumerate(y)
    ]
    parts.example_of_piece = [piece.example for piece in parts.pieces]
    parts.fold_of_piece = assign_folds(examples, count)[parts.example_of_piece]
    parts.predicted, parts.is_predicted = range(count), np.ones(len(examples), bool)
    parts.class_of_piece = y
    return parts


def curve_of(x: np.ndarray, y: np.ndarray) -> LearningCurve:
    parts, features = parts_of(y), Cached(x, y)
    whole, penalties = parts.predict_with_probe(features, "softmax", np.ones(len(y), bool))
    return parts.make_learning_curve(features, "softmax", whole, penalties)


class Clouds:
    """Two classes around two points, in so many dimensions; how often a linear function is right is known exactly."""

    def __init__(self, dimensions: int = 20, apart: float = 1.2):
        self.middle = np.zeros(dimensions)
        self.middle[0] = apart

    def drawn(self, count: int, rng) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 2, count)
        return (2 * y[:, None] - 1) * self.middle + rng.normal(size=(count, len(self.middle))), y

    def accuracy(self, x: np.ndarray, y: np.ndarray) -> float:
        probe = Cached(x, y).probe("softmax", (), list(range(len(y))))
        kernel, bias = probe.kernel[:, 1] - probe.kernel[:, 0], probe.bias[1] - probe.bias[0]
        at = np.array([kernel @ self.middle + bias, kernel @ self.middle - bias]) / np.linalg.norm(kernel)
        return float(norm.cdf(at).mean())

    def trial(self, count: int, rng) -> tuple[LearningCurve, float]:
        """What is forecast from so many labels, and what as many again bring."""
        x, y = self.drawn(2 * count, rng)
        return curve_of(x[:count], y[:count]), self.accuracy(x, y) - self.accuracy(x[:count], y[:count])


@pytest.mark.slow
def test_parts_and_folds_make_the_curve():
    x, y = Clouds(4).drawn(60, np.random.default_rng(0))
    curve = curve_of(x, y)
    assert curve.labels == [15, 30, 60] and curve.low < curve.gain < curve.high
    assert 0.6 < curve.scores[0] <= 1


@pytest.mark.long
@pytest.mark.parametrize("count", [80, 200, 800])
def test_the_interval_holds_the_gain_in_nine_data_sets_of_ten(count):
    rng, clouds = np.random.default_rng(count), Clouds()
    trials = [clouds.trial(count, rng) for _ in range(200)]
    inside = np.mean([curve.low <= gain <= curve.high for curve, gain in trials])
    forecasts, gains = np.mean([(curve.gain, gain) for curve, gain in trials], 0)
    width = np.mean([curve.high - curve.low for curve, _ in trials])
    print(
        f"{count} labels: inside {inside:.1%}, forecast {forecasts:.4f}, true {gains:.4f}, width {width:.4f}"
    )
    assert 0.83 <= inside <= 0.99
    assert width < 10 * gains, "and says something"
