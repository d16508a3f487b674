"""Pages of predictions: facts of the data, confusions, pictures, comparisons."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.command import train as run
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.inference.engines.jax import JaxEngine
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.kind import KINDS, Outcomes
from bert_jax.predictions.selective import CoverageLevel, LabelLevels
from bert_jax.report import model_card
from bert_jax.report.compare import compare_models
from bert_jax.report.confusions import ConfusionMatrix
from bert_jax.report.data_facts import collect_data_facts, find_contradictions
from bert_jax.report.evaluate_predictions import PredictionEvalConfig
from bert_jax.report.prediction_page import (
    ReportContext,
    contradiction_lines,
    evaluate_with_report,
    write_report,
)
from bert_jax.text.wordpiece import WordPiece
from tests.support.cases import long_except
from tests.support.made_up_outcomes import make_outcomes, many_class_outcomes
from tests.support.scoring import evaluate_model
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, SMALL_VOCABULARY, write_model
from tests.support.tables import write_jsonl


def test_what_stands_twice_is_counted():
    train = [
        Example(t, label, "") for t, label in (("a cat", "x"), ("A  cat", "y"), ("mat", "x"), ("sat", "x"))
    ]
    held = [Example(t, "x", "") for t in ("A CAT", "the cat sat on the mat", "mat")]
    kind = KINDS["classes"](("x", "y"))
    found = collect_data_facts(
        {"training": train, "held out": held}, WordPiece.from_vocabulary(SMALL_VOCABULARY), 6, kind
    )
    assert (found["training"].repeated, found["training"].conflicting) == (1, 1)
    assert found["held out"].shared == {"training": 2} and found["training"].shared == {"held out": 2}
    assert found["training"].labels == {"x": 3, "y": 1}
    assert found["held out"].longer == pytest.approx(1 / 3)


def test_duplicates_with_different_labels_are_listed():
    rows = [("The  CAT", "x"), ("mat", "x"), ("the cat", "y"), ("Mat", "x"), ("the cat", "x")]
    examples = [Example(text, label, f"row {i}") for i, (text, label) in enumerate(rows)]
    kind = KINDS["classes"](("x", "y"))
    lines = contradiction_lines(find_contradictions(examples, kind), kind)
    assert "1 text occurs with different labels:" in lines
    assert lines[-1] == "| The CAT | x (row 0); y (row 2); x (row 4) |"
    assert not contradiction_lines(find_contradictions(examples[:2], kind), kind)
    # The order of several labels says nothing.
    several = [Example("a", ("x", "y"), ""), Example("a", ("y", "x"), "")]
    assert not find_contradictions(several, KINDS["labels"](("x", "y")))


@pytest.mark.parametrize("kind", ["classes", "labels", "tags", "number"])
def test_flipped_labels_are_the_most_probable_errors(kind):
    given, rng = make_outcomes(kind, 200, skill=3.0), np.random.default_rng(1)
    flipped = {f"row {i}" for i in rng.permutation(200)[:10]}

    def other(label):
        match kind:
            case "number":
                return label + 6
            case "labels":
                return () if "O" in label else (*label, "O")
            case "tags":
                return ("I-X" if label[0] != "I-X" else "O", *label[1:])
        return "I-X" if label != "I-X" else "O"

    examples = [replace(e, label=other(e.label)) if e.where in flipped else e for e in given.examples]
    found = Outcomes(given.kind, examples, given.raw_outputs).label_errors
    assert len({error.example.where for error in found[:10]} & flipped) >= 8
    assert all(error.label != error.predicted for error in found)
    doubts = [error.error_score for error in found]
    assert doubts == sorted(doubts, reverse=True)


def test_a_label_error_names_the_doubtful_part():
    labels = ("O", "B-X")
    sure, unsure = [4.0, -4.0], [1.0, 0.0]
    tags = Outcomes(
        KINDS["tags"](labels),
        [Example(("a", "cat", "sat"), ("B-X", "B-X", "O"), "row 1"), Example(("mat",), ("O",), "row 2")],
        [np.array([unsure, sure, sure]), np.array([sure])],
    )
    (error,) = tags.label_errors
    assert (error.label, error.predicted, error.example.where) == ("B-X of “cat”", "O", "row 1")
    assert error.probability == pytest.approx(1 / (1 + np.exp(8)))
    several = Outcomes(KINDS["labels"](("x", "y")), [Example("a", ("x",), "row 1")], [np.array([-1.0, 3.0])])
    (error,) = several.label_errors
    assert (error.label, error.predicted) == ("not y", "y") and error.probability == pytest.approx(
        1 / (1 + np.exp(3))
    )
    assert not Outcomes(
        KINDS["labels"](("x", "y")), [Example("a", ("x",), "")], [np.array([1.0, -3.0])]
    ).label_errors


def test_the_confusions_of_many_classes_leave_no_row_empty():
    given = many_class_outcomes(600)
    found = ConfusionMatrix.from_pairs(given.report_data.pairs, given.kind.labels)
    counts, true, predicted = found.matrix(20)
    assert len(predicted) <= 21 and predicted[-1] == f"{len(found.names) - len(predicted) + 1} others"
    truth, wrong = given.truth, [(t, p) for t, p in given.report_data.pairs if t != p]
    assert counts.sum(1).tolist() == [truth.count(name) for name in true], "nothing of a row is left out"
    for row, name in zip(counts, true, strict=True):
        assert row.sum() > row[predicted.index(name)], "each row has a confusion"
    first = found.largest[0]
    assert wrong.count(first[:2]) == first[2] == max(map(wrong.count, wrong))
    assert sum(count for *_, count in found.largest) == len(wrong)


def test_a_confusion_matrix_of_few_classes_is_whole():
    pairs = [("a", "a"), ("a", "b"), ("c", "missed"), ("not true", "b")]
    counts, true, predicted = ConfusionMatrix.from_pairs(pairs, ("a", "b", "c")).matrix(20)
    assert (true, predicted) == (["a", "c", "not true"], ["a", "b", "c", "missed"])
    assert counts.tolist() == [[1, 1, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model") / "m"
    write_model(directory, heads=("classify",), labels=("O", "B-X", "I-X"))
    return bert_jax.load(directory)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    long_except(["classes", "labels", "tags", "answers", "number"], ["classes", "tags", "answers", "number"]),
)
def test_a_page_says_what_was_found_and_shows_its_pictures(kind, model, tmp_path):
    given = make_outcomes(kind)
    if kind == "classes":
        labels = given.kind.labels
        given.examples[3] = Example("a | b\n" + "c " * 400, labels[0], "row 3")
        given.raw_outputs[3] = 9 * np.eye(3)[1]
        levels = (CoverageLevel(0.5, 900, 890),)
        by_label = (LabelLevels(labels[0], 600, levels, (0.7,)), LabelLevels(labels[1], 30, (), ()))
        given.calibration = Calibration(kind, labels, (2.0,), levels=levels, by_label=by_label, examples=1800)
    longest = model.config.max_position_embeddings
    write_report(
        tmp_path,
        given,
        model,
        ReportContext("T", "bert-jax again", {"scored": given.examples}, unseen="Unseen.", trained_length=9),
    )
    text = (tmp_path / "report.md").read_text()
    named = re.findall(r"!\[.+\]\((.+)\)", text)
    assert sorted(named) == sorted(path.name for path in tmp_path.glob("*.png"))
    assert len(named) == {"number": 1, "classes": 4, "labels": 4, "tags": 4, "answers": 4}[kind]
    assert "    bert-jax again\n" in text
    assert ("## Probable label errors" in text) is (kind != "answers")
    assert ("model is wrong. Unseen." in text) is (kind != "answers")
    assert (
        f"read at most 9 tokens of a text (data.max_length); these predictions read up to {longest}." in text
    )
    for name, value in given.score_sums.scores.items():
        assert f"| {name} | {value:.4f} |" in text
    lines = {line.split(" | ")[0]: line for line in text.splitlines()}
    if kind == "number":
        assert lines["| mean_squared_error"].endswith(f"| {np.var(given.truth):.4f} |")
    assert "scaled to the standard error by the jackknife" in text
    assert ("| always the" in text) is (kind in ("classes", "number"))
    if kind == "classes":
        assert "| a \\| b c c" in text and max(map(len, text.splitlines())) < 500
        assert "Temperature 2, fitted on 1,800 examples" in text
        assert re.search(r"\| 0.95 \| 0.5000 \| \d+ of 60 \(\d+.\d%\) \|", text)
        assert (
            "| 0.99 | cannot be guaranteed" in text
            and "only for texts like those used for calibration" in text
        )
        right, predicted, true = given.report_data.counts[labels[0]]
        assert re.search(rf"\| {labels[0]} \| 0.95 \| 0.5000 \| \d+ of {predicted} \(.*\| 0.\d+ \|\n", text)
        assert f"| {labels[1]} | none can be guaranteed |" in text


@pytest.fixture
def two(tmp_path):
    """Two classifiers of the same labels, one of which says what the other does not, and a file."""
    write_model(tmp_path / "a", heads=("classify",), labels=("no", "yes"))
    model = bert_jax.load(tmp_path / "a")
    output = model.predict(SMALL_TEXTS)
    head = jax.tree.map(lambda leaf: -leaf, model.params["classify"])
    model.with_params(model.params | {"classify": head}).save(tmp_path / "b")
    rows = [{"text": text, "label": output[i] if i % 4 else "no"} for i, text in enumerate(SMALL_TEXTS)]
    return tmp_path / "a", tmp_path / "b", write_jsonl(tmp_path / "dev.jsonl", rows)


@pytest.mark.slow
def test_two_models_are_compared_example_by_example(two, tmp_path):
    a, b, data = two
    compared = compare_models(a, b, data)
    lines, found = compared.format(as_json=False), compared.facts
    right = [evaluate_model(bert_jax.load(one), data).metrics["accuracy"] for one in (a, b)]
    assert [each["accuracy"] for each in found["scores"]] == right
    assert found["differences"]["accuracy"]["value"] == pytest.approx(right[1] - right[0])
    assert len(found["better"]) == 8 * right[1] and len(found["worse"]) == 8 * right[0]
    assert f", only A on {len(found['worse'])}; on {len(found['otherwise'])} both are wrong" in lines
    assert lines.count("only A is right: ") == len(found["worse"])
    write_model(tmp_path / "c", heads=("classify",), labels=("no", "yes", "maybe"))
    with pytest.raises(BertJaxError, match="same labels"):
        compare_models(a, tmp_path / "c", data)


@pytest.mark.slow
def test_models_that_order_their_labels_differently_are_compared_by_the_f1_of_the_same_label(two, tmp_path):
    a, _, data = two
    model = bert_jax.load(a)
    head = jax.tree.map(lambda leaf: leaf[..., ::-1], model.params["classify"])
    layout = replace(model.layout, labels=("yes", "no"))
    replaced = JaxEngine(layout.config, model.params | {"classify": head})
    bert_jax.Classifier(layout, replaced, model.tokenizer).save(tmp_path / "c")
    compared = compare_models(a, tmp_path / "c", data).facts
    assert compared["scores"][0] == compared["scores"][1]


@pytest.mark.slow
def test_a_run_is_calibrated_and_reported_on_examples_it_did_not_learn_from(tmp_path):
    write_model(tmp_path / "m", SMALL_CONFIG.replace(num_hidden_layers=1), heads=("mlm",))
    rng = np.random.default_rng(0)
    rows = [
        {"text": f"{n} {rng.choice(SMALL_TEXTS)}", "label": str(rng.choice(["no", "yes"]))}
        for n in range(240)
    ]
    data = write_jsonl(tmp_path / "train.jsonl", rows)
    values = {
        "init": tmp_path / "m", "data.train": data, "data.max_length": 16, "data.calibration_ratio": 0.25,
        "data.batch_size": 32, "data.batching": "padded", "epochs": 1, "log.every": 2, "model.pooling": "mean",
    }  # fmt: skip
    settings = "configs/classify.py", [f"{name}={value}" for name, value in values.items()]
    foreign = tmp_path / "other" / "report" / "thesis.md"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("years of work")
    with pytest.raises(BertJaxError, match="report is not empty"):
        run.start_training(*settings, str(tmp_path / "other"))
    assert not (tmp_path / "other" / "run.json").exists(), "refused before the first step"
    run.start_training(*settings, str(tmp_path / "run"))
    found = bert_jax.load(tmp_path / "run" / "model").calibration
    text = (tmp_path / "run" / "report" / "report.md").read_text()
    assert found.kind == "classes" and found.examples == 54  # a quarter of what is not held out
    for part, examples in (("validation", 24), ("training", 162), ("calibration", 54)):
        row = re.search(rf"\| {part} \| {examples} \|.*", text)[0]
        assert [cell.strip() for cell in row.split("|")[-4:-1]].count("0") == 2, "no text is in two parts"
    assert "![losses and scores by step](curves.png)" in text
    assert (tmp_path / "run" / "report" / "curves.png").exists()
    again = text.split("## Reproduce")[1]
    assert "bert-jax train --config configs/classify.py" in again and "--config.epochs=1" in again
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert f"{data}: 162 examples to train on, 24 for validation, 54 for calibration." in card
    (scores,) = re.findall(r"\| accuracy \| (0.\d+) \| 0.\d+ to \d.\d+ \|", card)
    assert f"| accuracy | {scores} |" in text and "Calibrated on 54 examples: " in card
    assert model_card.was_written_by_run(tmp_path / "run" / "model")


@pytest.mark.slow
def test_evaluate_writes_a_report(two, tmp_path):
    a, _, data = two
    output = evaluate_with_report(tmp_path / "r", a, PredictionEvalConfig(data), command="bert-jax evaluate")
    assert f"8 examples of {data}: classify" in output.lines[0]
    text = (tmp_path / "r" / "report.md").read_text()
    assert "This model was not calibrated." in text and "| scored | 8 |" in text
    (tmp_path / "file").write_text("")
    with pytest.raises(BertJaxError, match="file: Not a directory; name another one"):
        evaluate_with_report(tmp_path / "file", a, PredictionEvalConfig(data))
