"""Calibration: against independent computations, against its promises on fresh data, and in a model directory."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.inference.row_predictor import PredictionOptions
from bert_jax.inference.text_outcomes import predict_outcomes
from bert_jax.metrics.tagged_spans import count_spans
from bert_jax.predictions import calibration, calibration_fitting, selective
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.kinds import answers, tags
from bert_jax.predictions.kinds import classes as single_label
from bert_jax.predictions.kinds import labels as several
from bert_jax.predictions.selective import CoverageLevel
from tests.support.made_up_outcomes import make_outcomes
from tests.support.prediction_rows import predict_rows
from tests.support.small_models import SMALL_TEXTS, edit_config, write_model
from tests.support.tables import write_jsonl


def texts_of(count: int, heat: float, classes: int = 3, seed: int = 0):
    """(logits, truth): the truth is drawn with the probabilities of the logits divided by `heat`."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (count, classes))
    likely = calibration.softmax(logits / heat)
    return logits, np.array([rng.choice(classes, p=p) for p in likely])


def fitted(logits, truth, labels="abc"):
    return single_label.fit_class_calibration(logits, truth, labels, documents(len(truth)))


def documents(count: int) -> list[str]:
    return [f"text {n}" for n in range(count)]


@pytest.mark.slow
def test_a_temperature_is_that_of_an_independent_search():
    logits, truth = texts_of(3000, heat=2.5)
    heats = np.exp(np.linspace(-1, 2, 4001))
    shifted = [logits / heat for heat in heats]
    losses = [np.mean(np.log(np.exp(z).sum(-1)) - z[np.arange(3000), truth]) for z in shifted]
    found = calibration_fitting.fit_temperature(logits, truth)
    assert found == pytest.approx(heats[int(np.argmin(losses))], rel=2e-3)
    assert found == pytest.approx(2.5, rel=0.15)


def test_without_an_error_a_temperature_is_bounded_and_nearer_to_1_the_fewer_texts_there_are():
    logits, _ = texts_of(400, heat=1)
    few, more, many = (
        calibration_fitting.fit_temperature(z, z.argmax(-1)) for z in (logits[:10], logits[:50], logits)
    )
    assert 0.15 < many < more < few < 1
    z = np.full(50, 4.0)
    assert 0.3 < calibration_fitting.fit_binary_temperature(z, np.ones(50)) < 1
    assert calibration_fitting.fit_binary_temperature(z[:0], z[:0], expected=2.5) == pytest.approx(2.5)
    assert calibration_fitting.fit_logistic(z[:0], z[:0]) == (1, 0)


def test_a_temperature_of_a_label_and_log_odds_are_those_of_an_independent_search():
    rng = np.random.default_rng(1)
    z = rng.normal(0, 4, 3000)
    y = rng.random(3000) < calibration.sigmoid(z / 3)
    heats = np.exp(np.linspace(-1, 2, 2001))
    losses = [np.mean(np.log1p(np.exp(-np.where(y, z, -z) / heat))) for heat in heats]
    assert calibration_fitting.fit_binary_temperature(z, y) == pytest.approx(
        heats[int(np.argmin(losses))], rel=2e-3
    )
    y = rng.random(3000) < calibration.sigmoid(0.4 * z + 1)

    def loss(line):
        prior = (
            (line - (1, 0)) ** 2 / np.square((calibration_fitting.FACTOR, calibration_fitting.OFFSET))
        ).sum() / 2
        return np.logaddexp(0, np.where(y, -1, 1) * (line[0] * z + line[1])).sum() + prior

    found = optimize.minimize(loss, (1.0, 0.0)).x
    assert calibration_fitting.fit_logistic(z, y) == pytest.approx(tuple(found), rel=1e-3)


def test_the_error_is_the_mean_gap_of_equal_bins():
    likely = np.array([0.05, 0.95, 0.93, 0.72, 0.71, 1.0])
    right = np.array([0, 1, 0, 1, 1, 1])
    # By hand, in ten bins: [0, .1) alone, [.7, .8) two, [.9, 1] three.
    by_hand = (0.05 + abs(0.72 + 0.71 - 2) + abs(0.95 + 0.93 + 1 - 2)) / 6
    assert calibration_fitting.expected_calibration_error(likely, right, bins=10) == pytest.approx(by_hand)


def test_an_overconfident_model_gets_better_and_its_classes_stay():
    found = fitted(*texts_of(4000, heat=4))
    assert found.error_before > 0.2 and found.error_after < 0.04 and found.loss_after < found.loss_before
    fresh, truth = texts_of(4000, heat=4, seed=1)
    likely = found.probabilities(fresh)
    assert (likely.argmax(-1) == fresh.argmax(-1)).all()
    assert calibration_fitting.expected_calibration_error(likely.max(-1), likely.argmax(-1) == truth) < 0.04


def test_every_fold_is_judged_by_what_the_others_fitted():
    names = [f"d{n % 23}" for n in range(100)]
    parts = calibration_fitting.document_folds(names)
    assert sorted(np.concatenate(parts)) == list(range(100)) and len(parts) == 10
    of_part = [{names[row] for row in part} for part in parts]
    assert sum(map(len, of_part)) == 23, "no document is in two folds"
    fitted_to = []

    def fit(rows):
        fitted_to.append(set(rows))
        return Calibration("classes", (), (1.0,), missing=len(fitted_to) - 1.0)

    def judge(given, rows):
        assert not set(rows) & fitted_to[int(given.missing)]
        ones = np.ones(len(rows))
        return calibration_fitting.CalibratedPredictions(ones, ones, ones > 0, ones, ones > 0, rows)

    found = calibration_fitting.cross_fit([fit], judge, names)
    assert fitted_to[int(found.missing)] == set(range(100)) and found.examples == 100
    with pytest.raises(BertJaxError, match="one document"):
        calibration_fitting.document_folds(["d"] * 5)


def test_predictions_of_a_document_that_are_wrong_together_count_as_fewer():
    rng = np.random.default_rng(0)
    documents_of_five = np.repeat(np.arange(200), 5)
    together = np.repeat(rng.random(200) < 0.8, 5)
    assert selective.design_effect(together, documents_of_five) == pytest.approx(5, rel=0.05)
    assert selective.design_effect(rng.random(1000) < 0.8, documents_of_five) == pytest.approx(1, abs=0.2)
    assert selective.design_effect(together, np.arange(1000)) == 1
    assert selective.design_effect(np.ones(1000) > 0, documents_of_five) == 5, (
        "no error: they may be all alike"
    )
    (level,) = selective.count_levels(np.full(1000, 0.5), together, 5.0)
    assert level == CoverageLevel(0.5, 200, together.sum() // 5)


def test_probabilities_that_fit_stay_and_those_of_a_single_error_too():
    logits, truth = texts_of(120, heat=1, classes=2)
    logits[:, 0] += 12 * (truth == 0)
    logits[:, 1] += 12 * (truth == 1)
    truth[0] = 1 - truth[0]  # the only error
    found = fitted(logits, truth, "ab")
    assert found.keeps_probabilities and found.error_before == found.error_after
    assert not fitted(*texts_of(200, heat=4)).keeps_probabilities


def label_of(rng, count, share, shift=0.0):
    """(logits, truth) of a label that this share of the texts has; `shift` makes the logits too low."""
    truth = rng.random(count) < share
    return np.where(truth, 1.5, -1.5) * 1.3 + np.log(share / (1 - share)) + rng.normal(
        0, 1.5, count
    ) - shift, truth


def test_a_rare_label_is_found():
    rng, f1 = np.random.default_rng(2), []
    for _ in range(10):
        logits, truth = (
            np.stack(x, 1) for x in zip(*(label_of(rng, 338, p, 1) for p in (0.4, 0.05)), strict=True)
        )
        found = several.fit_label_calibration(logits, truth, "ab", documents(338))
        fresh, right = label_of(rng, 4000, 0.05, 1)
        predicted = calibration.sigmoid(fresh / found.temperatures[1]) > found.thresholds[1]
        f1.append(2 * (predicted & right).sum() / (predicted.sum() + right.sum()))
    at_half = 2 * ((fresh > 0) & right).sum() / ((fresh > 0).sum() + right.sum())
    assert min(f1) > 0.3 and np.mean(f1) > at_half + 0.1


def test_a_threshold_is_the_best_of_its_label_or_of_its_probabilities_where_there_are_few():
    rng = np.random.default_rng(2)
    logits, truth = label_of(rng, 20_000, 0.2, 2)
    likely = calibration.sigmoid(logits)

    def f1(threshold):
        return 2 * (truth & (likely > threshold)).sum() / ((likely > threshold).sum() + truth.sum())

    best = max(map(f1, np.linspace(0, 1, 300)))
    assert f1(calibration_fitting.label_threshold(likely, truth)) > best - 0.005
    assert calibration_fitting.best_threshold(likely, truth) == pytest.approx(
        calibration_fitting.label_threshold(likely, truth), abs=0.05
    )
    few, none = likely[:200], np.zeros(200)
    assert (
        calibration_fitting.label_threshold(few, none) == calibration_fitting.best_threshold(few, few) < 0.5
    )
    # By hand: of the two of 0.8 all are expected to be right, and 0.2 add less than they cost.
    assert calibration_fitting.best_threshold(
        np.array([0.8, 0.8, 0.2]), np.array([0.8, 0.8, 0.2])
    ) == pytest.approx(0.5)


def test_no_answer_is_given_where_it_makes_f1_best():
    gaps, f1, none = (
        np.array([3.0, 1, -1, -2] * 10),
        np.array([0, 0.9, 0.8, 1] * 10),
        np.array([1, 0, 0, 0] * 10),
    )
    assert answers.best_gap(gaps, f1, none) == 2
    assert answers.best_gap(-gaps, 1.0 - none, none) == 2.5


def test_when_to_give_no_answer_is_learnt_and_the_rest_is_judged():
    rng = np.random.default_rng(3)
    none = np.arange(200) % 2 == 0
    gaps, scores = np.where(none, 5, 1) + rng.normal(0, 0.5, 200), np.where(none, 0.3, 0.9)
    best = answers.BestAnswers(scores, 1.0 * ~none, ~none, gaps, none)
    found = best.calibration(documents(200))
    assert 2 < found.missing < 4 and found.levels[0].answers == found.levels[0].right == 100
    assert answers.answer_probability(np.array(0.9), found) > 0.95, "none of those that are given is wrong"


def test_spans_of_a_text_that_are_wrong_together_count_as_fewer():
    kind, rng = tags.Tags(("O", "B-X")), np.random.default_rng(0)
    right = rng.random(60) < 0.7
    truth = [("B-X",) * 8 if hit else ("O",) * 8 for hit in right]
    examples = [Example(tuple(f"w{n} {i}" for i in range(8)), tag, "") for n, tag in enumerate(truth)]
    raws = [np.stack([np.zeros(8), rng.normal(2, 0.1, 8)], 1) for _ in right]
    assert 50 < kind.decoder.calibrate(Outcomes(kind, examples, raws)).levels[0].answers < 70, (
        "not 480 spans, but 60 texts"
    )


def test_what_cannot_be_promised_is_said_in_a_line_whose_numbers_hold():
    found = fitted(*texts_of(400, heat=4))
    with pytest.raises(BertJaxError, match="0.9.*400") as refusal:
        found.confidence_threshold(0.9)
    best = float(re.search(r"; at most ([\d.]+) is reachable: ask for that", str(refusal.value))[1])
    assert "label more, give the folds more time by --config.minutes=M or, without folds" in str(
        refusal.value
    )
    assert 0.5 < best < 0.9 and 0 < found.confidence_threshold(best) < 1 and len(str(refusal.value)) < 400
    with pytest.raises(BertJaxError, match="cannot be guaranteed"):
        found.confidence_threshold(best + 0.001)
    right = Calibration("classes", ("a", "b"), (1.0,), levels=(CoverageLevel(0.9, 298, 298),), examples=298)
    with pytest.raises(BertJaxError, match="298.*299.*0.989"):
        right.confidence_threshold(0.99)
    assert replace(right, levels=(CoverageLevel(0.9, 299, 299),)).confidence_threshold(0.99) == 0.9
    with pytest.raises(BertJaxError, match="not calibrated"):
        Calibration().confidence_threshold(0.9)


def true_and_found(given: Outcomes, label: str) -> tuple[int, int]:
    """How many examples, or spans, have the label, and how many of these are predicted."""
    if given.kind.name == "tags":
        right, _, true = count_spans(given.predictions, given.truth)[label]
        return true, right
    sides = zip(given.truth, given.predictions, strict=True)
    both = [(label in {*t}, label in {*p}) for t, p in sides if given.kind.name == "labels"]
    both = both or [(label == t, label == p) for t, p in zip(given.truth, given.predictions, strict=True)]
    return sum(t for t, _ in both), sum(t and p for t, p in both)


@pytest.mark.parametrize(("kind", "labels"), [("classes", 3), ("labels", 3), ("tags", 1)])
def test_the_predictions_of_each_label_are_counted(kind, labels):
    given = make_outcomes(kind, count=400)
    found = given.kind.decoder.calibrate(given)
    assert len(found.by_label) == labels
    for known in found.by_label:
        true, right = true_and_found(given, known.label)
        assert known.examples == true
        lowest = min(known.levels, key=lambda level: level.threshold)
        # Several labels are chosen by the thresholds of the folds, which differ a little.
        assert known.recall_from(lowest.threshold) == pytest.approx(
            right / true, abs=0.05 if kind == "labels" else 0
        )
        assert [*known.recalls] == sorted(known.recalls, reverse=True)


@pytest.fixture
def classifier(tmp_path):
    write_model(tmp_path / "m", heads=("classify",), labels=("no", "yes"))
    return tmp_path / "m"


@pytest.mark.slow
def test_a_model_carries_its_calibration_and_predict_uses_it(classifier, tmp_path):
    bare = bert_jax.load(classifier)
    plain = bare.classify(SMALL_TEXTS)
    odds = [np.log(one.score / (1 - one.score)) / 2 for one in plain]
    middle = float(np.median(calibration.sigmoid(np.array(odds))))
    levels = (CoverageLevel(middle, 1000, 990), CoverageLevel(0.5, 2000, 1500))
    given = Calibration("classes", ("no", "yes"), (2.0,), levels=levels)
    calibration.save_calibration(classifier, given)
    model = bert_jax.load(classifier)
    assert model.calibration == given
    data = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in SMALL_TEXTS])
    found = list(predict_rows(model, data, options=PredictionOptions(precision=0.95)))
    assert [one["label"] for one in found] == [one.label for one in plain]
    for one, more in zip(found, odds, strict=True):
        assert one["score"] == pytest.approx(calibration.sigmoid(more), abs=1e-3)
        assert one["abstained"] == (one["score"] < middle)
    assert {one["abstained"] for one in found} == {True, False}
    sure = model.classify(SMALL_TEXTS, min_precision=0.95)
    assert [one is None for one in sure] == [one["abstained"] for one in found]
    model.save(tmp_path / "copy")
    assert bert_jax.load(tmp_path / "copy").calibration == given
    bare.save(tmp_path / "bare")
    assert not (tmp_path / "bare" / calibration.FILE).exists()


def test_a_calibration_of_other_labels_or_a_damaged_one_is_said(classifier):
    calibration.save_calibration(classifier, Calibration("classes", ("a", "b"), (3.0,)))
    with pytest.warns(UserWarning, match="calibration.json"):
        assert bert_jax.load(classifier).calibration == calibration.UNCALIBRATED
    for damaged in (
        "{", '{"kind": "classes", "by_label": [{"label": "a", "examples": 1, "levels": [], "recalls": [0.5]}]}'
    ):  # fmt: skip
        (classifier / calibration.FILE).write_text(damaged)
        with pytest.raises(BertJaxError, match="calibration.json"):
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
        text = SMALL_TEXTS[n % 6]
        label = {
            "classes": lambda: str(rng.choice(labels)),
            "labels": lambda: tuple(x for x in labels if rng.random() < 0.5),
            "tags": lambda text=text: tuple(str(x) for x in rng.choice(labels, len(text.split()))),
            "answers": lambda text=text: ((0, text.split()[0]),) if rng.random() < 0.5 else (),
        }[kind]()
        text = {"tags": tuple(text.split()), "answers": ("cat ?", text)}.get(kind, text)
        examples.append(Example(text, label, ""))
    given = predict_outcomes(model, examples)
    found = given.kind.decoder.calibrate(given)
    assert found.kind == kind and found.examples == 60 and found.labels == labels
    assert found.levels and all(temperature > 0 for temperature in found.temperatures)
    calibration.save_calibration(tmp_path / "m", found)
    assert bert_jax.load(tmp_path / "m").calibration == found


def test_a_calibration_prints_in_a_line():
    known = fitted(*texts_of(400, heat=2.5))
    shown = repr(known)
    assert shown.startswith("<Calibration of classes on 400 examples: log loss ") and len(shown) < 200
    assert repr(known.by_label[0]).startswith('<LabelLevels of "a": ') and len(repr(known.by_label)) < 300
    assert repr(calibration.UNCALIBRATED) == "<Calibration: none>"
