"""Calibration: against independent computations, against its promises on fresh data, and in a model directory."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.command.predict import predictions
from bert_jax.data.examples.example import Example
from bert_jax.errors import BertJaxError
from bert_jax.inference.outcomes import outcomes
from bert_jax.predictions import calibration, fitting
from bert_jax.predictions.calibration import Calibration, Level
from bert_jax.predictions.kinds import answers, classes
from bert_jax.predictions.kinds import labels as several
from test_evaluate import TEXTS, write_lines
from test_hub import edit_config
from test_hub import write as write_model


def texts_of(count: int, heat: float, classes: int = 3, seed: int = 0):
    """(logits, truth): the truth is drawn with the probabilities of the logits divided by `heat`."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (count, classes))
    likely = calibration.softmax(logits / heat)
    return logits, np.array([rng.choice(classes, p=p) for p in likely])


def test_a_temperature_is_that_of_an_independent_search():
    logits, truth = texts_of(3000, heat=2.5)
    heats = np.exp(np.linspace(-1, 2, 4001))
    shifted = [logits / heat for heat in heats]
    losses = [np.mean(np.log(np.exp(z).sum(-1)) - z[np.arange(3000), truth]) for z in shifted]
    found = fitting.temperature(logits, truth)
    assert found == pytest.approx(heats[int(np.argmin(losses))], rel=2e-3)
    assert found == pytest.approx(2.5, rel=0.15)
    assert fitting.temperature(logits, logits.argmax(-1)) == 1, "no error, nothing to learn"


def test_a_temperature_of_a_label_and_log_odds_are_those_of_an_independent_search():
    rng = np.random.default_rng(1)
    z = rng.normal(0, 4, 3000)
    y = rng.random(3000) < calibration.sigmoid(z / 3)
    heats = np.exp(np.linspace(-1, 2, 2001))
    losses = [np.mean(np.log1p(np.exp(-np.where(y, z, -z) / heat))) for heat in heats]
    assert fitting.binary_temperature(z, y) == pytest.approx(heats[int(np.argmin(losses))], rel=2e-3)
    y = rng.random(3000) < calibration.sigmoid(0.4 * z + 1)
    linear = pytest.importorskip("sklearn.linear_model").LogisticRegression(C=1e6).fit(z[:, None], y)
    slope, offset = fitting.logistic(z, y)
    assert (slope, offset) == pytest.approx((linear.coef_[0, 0], linear.intercept_[0]), rel=1e-3)


def test_the_error_is_the_mean_gap_of_equal_bins():
    likely = np.array([0.05, 0.95, 0.93, 0.72, 0.71, 1.0])
    right = np.array([0, 1, 0, 1, 1, 1])
    # By hand, in ten bins: [0, .1) alone, [.7, .8) two, [.9, 1] three.
    by_hand = (0.05 + abs(0.72 + 0.71 - 2) + abs(0.95 + 0.93 + 1 - 2)) / 6
    assert fitting.error(likely, right, bins=10) == pytest.approx(by_hand)


def test_an_overconfident_model_gets_better_and_its_classes_stay():
    logits, truth = texts_of(4000, heat=4)
    found = classes.fit(logits, truth, "abc")
    assert found.error_before > 0.2 and found.error_after < 0.04
    fresh, truth = texts_of(4000, heat=4, seed=1)
    likely = found.likely(fresh)
    assert (likely.argmax(-1) == fresh.argmax(-1)).all()
    assert fitting.error(likely.max(-1), likely.argmax(-1) == truth) < 0.04
    assert (Calibration().likely(fresh) == calibration.softmax(fresh)).all()


def test_a_promised_precision_holds_on_fresh_data():
    fresh = np.random.default_rng(99).normal(0, 3, (20_000, 3))
    right = calibration.softmax(fresh / 2).max(-1)  # how likely each best class is right, which we know here
    broken = 0
    for seed in range(20):
        found = classes.fit(*texts_of(1000, heat=2, seed=seed), "abc")
        kept = found.likely(fresh).max(-1) >= found.floor(0.75)
        assert 0.05 < kept.mean() < 0.95
        broken += right[kept].mean() < 0.75
    assert broken <= 2


def test_the_risk_of_a_promise_is_the_binomials():
    stats = pytest.importorskip("scipy.stats")
    for count, right, precision in ((100, 98, 0.9), (2000, 1900, 0.94), (30, 30, 0.99), (10, 0, 0.5)):
        expected = stats.binom.cdf(count - right, count, 1 - precision)
        assert calibration.tail(count, right, precision) == pytest.approx(expected, rel=1e-9)
    level = Level(0.9, 200, 199)
    assert calibration.tail(200, 199, calibration.promised(level, 0.01)) == pytest.approx(0.01)


def test_thresholds_are_the_best_and_those_of_too_few_are_left():
    rng = np.random.default_rng(2)
    truth = rng.random((2000, 3)) < (0.3, 0.1, 0.002)
    logits = np.where(truth, -1.0, -4.0) + rng.normal(0, 1, truth.shape)  # all too low
    found = several.fit(logits, truth, "abc")
    likely = found.likely(logits[::2], several=True)
    for label in (0, 1):
        f1 = [
            2 * (truth[::2, label] & (likely[:, label] > t)).sum()
            / ((likely[:, label] > t).sum() + truth[::2, label].sum())
            for t in (*np.linspace(0, 1, 300), found.thresholds[label])
        ]  # fmt: skip
        assert f1[-1] == max(f1) > 0.8
    assert found.thresholds[2] == 0.5
    logits = rng.normal(-2, 6, truth.shape)
    found = several.fit(logits, rng.random(truth.shape) < calibration.sigmoid(logits / 4), "abc")
    assert found.error_after < 0.04 < 0.1 < found.error_before
    gaps, f1, none = (
        np.array([3.0, 1, -1, -2] * 10),
        np.array([0, 0.9, 0.8, 1] * 10),
        np.array([1, 0, 0, 0] * 10),
    )
    assert answers.best_gap(gaps, f1, none) == 2
    assert answers.best_gap(-gaps, 1.0 - none, none) == 2.5


def test_what_cannot_be_promised_is_said_in_a_line():
    logits, truth = texts_of(400, heat=4)
    found = classes.fit(logits, truth, "abc")
    with pytest.raises(
        BertJaxError, match="0.99 cannot be promised: of 400 examples .* show 0.[0-9]+ at most"
    ):
        found.floor(0.99)
    with pytest.raises(BertJaxError, match="was not calibrated, so no precision can be promised"):
        Calibration().floor(0.9)


@pytest.fixture
def classifier(tmp_path):
    write_model(tmp_path / "m", heads=("classify",), labels=("no", "yes"))
    return tmp_path / "m"


@pytest.mark.slow
def test_a_model_carries_its_calibration_and_predict_uses_it(classifier, tmp_path):
    bare = bert_jax.load(classifier)
    plain = bare.classify(TEXTS)
    odds = [np.log(one.score / (1 - one.score)) / 2 for one in plain]
    middle = float(np.median(calibration.sigmoid(np.array(odds))))
    levels = (Level(middle, 1000, 990), Level(0.5, 2000, 1500))
    given = Calibration("classes", ("no", "yes"), (2.0,), levels=levels)
    calibration.save(classifier, given)
    model = bert_jax.load(classifier)
    assert model.calibration == given
    found = list(
        predictions(model, write_lines(tmp_path / "in.jsonl", [{"text": t} for t in TEXTS]), precision=0.95)
    )
    assert [one["label"] for one in found] == [one.label for one in plain]
    for one, more in zip(found, odds, strict=True):
        assert one["score"] == pytest.approx(calibration.sigmoid(more), abs=1e-3)
        assert one["margin"] == pytest.approx(2 * one["score"] - 1, abs=1e-5)
        assert one["abstained"] == (one["score"] < middle)
    assert {one["abstained"] for one in found} == {True, False}
    sure = model.classify(TEXTS, precision=0.95)
    assert [one is None for one in sure] == [one["abstained"] for one in found]
    model.save(tmp_path / "copy")
    assert bert_jax.load(tmp_path / "copy").calibration == given
    bare.save(tmp_path / "copy")  # over it, without one
    assert not (tmp_path / "copy" / calibration.FILE).exists()


@pytest.mark.slow
def test_the_file_of_an_earlier_version_gives_the_same_answers(classifier):
    plain = bert_jax.load(classifier).classify(TEXTS, scores=True)
    (classifier / calibration.FILE).write_text("""{
 "kind": "classes",
 "labels": ["no", "yes"],
 "temperatures": [2.0],
 "thresholds": [],
 "offset": 0.0,
 "missing": 0.0,
 "levels": [{"threshold": 0.5, "answers": 200, "right": 150}, {"threshold": 0.6, "answers": 90, "right": 89}],
 "examples": 400,
 "error_before": 0.1,
 "error_after": 0.02
}
""")
    model = bert_jax.load(classifier)
    for before, after in zip(plain, model.classify(TEXTS, scores=True), strict=True):
        odds = np.log(before["yes"] / before["no"])
        assert after["yes"] == pytest.approx(calibration.sigmoid(odds / 2), abs=1e-5)
    assert model.calibration.floor(0.9) == 0.6
    read = (classifier / calibration.FILE).read_text()
    model.save(classifier)
    assert json.loads((classifier / calibration.FILE).read_text()) == json.loads(read)


def test_a_calibration_of_other_labels_or_a_damaged_one_is_said(classifier):
    calibration.save(classifier, Calibration("classes", ("a", "b"), (3.0,)))
    with pytest.warns(
        UserWarning, match="calibration.json is for other labels than the model's and is ignored"
    ):
        assert bert_jax.load(classifier).calibration == calibration.NONE
    (classifier / calibration.FILE).write_text("{")
    with pytest.raises(BertJaxError, match="calibration.json is not valid JSON"):
        bert_jax.load(classifier)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classes", "labels", "tags", "answers"])
def test_every_kind_of_model_is_calibrated(kind, tmp_path):
    head = {"tags": "tag", "answers": "answer"}.get(kind, "classify")
    labels = {"answers": (), "tags": ("O", "B-X", "I-X")}.get(kind, ("a", "b"))
    write_model(tmp_path / "m", heads=(head,), labels=labels)
    if kind == "labels":
        edit_config(tmp_path / "m", problem_type="multi_label_classification")
    model, rng, examples = bert_jax.load(tmp_path / "m"), np.random.default_rng(0), []
    for n in range(60):
        text = TEXTS[n % 6]
        label = {
            "classes": lambda: str(rng.choice(labels)),
            "labels": lambda: tuple(x for x in labels if rng.random() < 0.5),
            "tags": lambda text=text: tuple(str(x) for x in rng.choice(labels, len(text.split()))),
            "answers": lambda text=text: ((0, text.split()[0]),) if rng.random() < 0.5 else (),
        }[kind]()
        text = {"tags": tuple(text.split()), "answers": ("cat ?", text)}.get(kind, text)
        examples.append(Example(text, label, ""))
    given = outcomes(model, examples)
    found = given.kind.calibrate(given)
    assert found.kind == kind and found.examples == 60 and found.labels == labels
    assert found.levels and all(temperature > 0 for temperature in found.temperatures)
    calibration.save(tmp_path / "m", found)
    assert bert_jax.load(tmp_path / "m").calibration == found
