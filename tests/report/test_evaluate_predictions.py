"""The verb `evaluate`: models of each kind, scored on files."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.example import Example
from bert_jax.metrics.classification import score_single_label
from bert_jax.metrics.intervals import bootstrap_intervals
from bert_jax.predictions.kind import require_kind
from bert_jax.predictions.kinds.labels import Labels
from bert_jax.predictions.label_matching import match_label_names
from bert_jax.report.compare import compare_models
from bert_jax.report.evaluate_predictions import PredictionEvalConfig, evaluate_directory
from bert_jax.report.prediction_page import evaluate_with_report
from tests.support.scoring import evaluate_model
from tests.support.small_models import SMALL_TEXTS, SMALL_VOCABULARY, edit_config, write_model
from tests.support.tables import write_jsonl, write_squad


def test_answers_far_into_a_text_across_a_windows_edge_and_absent(tmp_path, monkeypatch):
    """A finder that knows what it looks for once it stands in one window whole."""
    write_model(tmp_path / "model", heads=("answer",))
    model = bert_jax.load(tmp_path / "model")
    wanted = [
        SMALL_VOCABULARY.index(word) for word in ("sat", "cat", "##s", "mat")
    ]  # as many tokens as windows share

    def find(_, encodings, program, beside):
        for encoding in encodings:
            logits = np.zeros((len(encoding.input_ids), 2), np.float32)
            logits[0] = 5
            for i in encoding.spans[1]:
                if encoding.input_ids[i : i + 4] == wanted:
                    logits[i, 0], logits[i + 3, 1], logits[0] = 9, 9, 0
            yield logits

    monkeypatch.setattr(type(model), "run", lambda *given: list(find(*given)))
    passages = [
        f"{'the ' * before}sat cats mat{' .' * after}" for before in (*range(13), 700) for after in (0, 9)
    ]
    asked = [("on ?", passage, ["sat cats mat"]) for passage in passages]
    scored = evaluate_model(model, write_squad(tmp_path / "1.json", asked))
    assert scored.metrics == {"exact": 1, "f1": 1} and "must give one (SQuAD 1.1)" in scored.notes[0]
    scored = evaluate_model(
        model, write_squad(tmp_path / "2.json", [*asked, ("on ?", "the cat sat . " * 200, [])])
    )
    assert scored.metrics["unanswerable"] == scored.metrics["answerable_exact"] == 1
    assert "may give none if that is likelier (SQuAD 2.0" in scored.notes[0]


@pytest.mark.slow
def test_two_classes_and_what_is_said_of_them(tmp_path):
    write_model(tmp_path / "model", heads=("classify",), labels=("no", "yes"))
    model = bert_jax.load(tmp_path / "model")
    texts = [*SMALL_TEXTS, "the cat sat on the mat . " * 5]
    with pytest.warns(UserWarning):
        output = model.predict(texts)
    truth = ["no", "yes"] * 4 + ["no"]
    data = tmp_path / "dev.csv"
    data.write_text(
        "review,stars\n" + "".join(f'"{t}",{label.upper()}\n' for t, label in zip(texts, truth, strict=True))
    )
    columns = ExampleColumns(text="review", label="stars")
    found = evaluate_directory(tmp_path / "model", PredictionEvalConfig(str(data), columns)).facts
    right = sum(a == b for a, b in zip(output, truth, strict=True))
    both = sum(a == b == "yes" for a, b in zip(output, truth, strict=True))
    assert found["metrics"]["accuracy"] == pytest.approx(right / 9)
    assert found["metrics"]["f1"] == pytest.approx(2 * both / (output.count("yes") + 4))
    names, f1, cut = found["notes"]
    assert names.endswith("NO = no, YES = yes") and f1 == 'f1 is that of "yes"'
    assert cut.startswith("1 of 9 texts (number 9) is longer than 16 tokens and was truncated by 21 tokens")
    windows = evaluate_model(model, str(data), columns=columns, long_texts="windows")
    assert len(windows.notes) == 2


@pytest.mark.slow
def test_several_labels_and_numbers(tmp_path):
    write_model(tmp_path / "several", heads=("classify",), labels=tuple("abcdef"))
    edit_config(tmp_path / "several", problem_type="multi_label_classification")
    model = bert_jax.load(tmp_path / "several")
    output = [[found.label for found in each] for each in model.classify(SMALL_TEXTS)]
    data = write_jsonl(
        tmp_path / "1.jsonl", [{"text": t, "labels": s} for t, s in zip(SMALL_TEXTS, output, strict=True)]
    )
    scored = evaluate_model(model, data)
    assert (
        scored.metrics["accuracy"] == scored.metrics["f1_micro"] == 1 and scored.task == "classify (labels)"
    )

    write_model(tmp_path / "number", heads=("classify",), labels=("LABEL_0",))
    model = bert_jax.load(tmp_path / "number")
    rows = [{"sentence1": t, "sentence2": t, "score": 2 * model.predict((t, t)) + 1} for t in SMALL_TEXTS[:4]]
    scored = evaluate_model(model, write_jsonl(tmp_path / "2.jsonl", rows))
    assert scored.metrics["pearson"] == pytest.approx(1) and scored.metrics["spearman"] == 1


def test_what_a_classifier_gives_is_its_problem_type():
    def kind(problem, *labels):
        layout = SimpleNamespace(
            heads=("classify",), labels=labels, hf_config={"problem_type": problem}, is_cross_encoder=False
        )
        return require_kind(layout).name

    assert kind(None, "a", "b") == kind("single_label_classification", "a", "b") == "classes"
    assert kind(None, "a") == kind("regression", "a") == "number"
    assert kind("multi_label_classification", "a") == "labels"
    with pytest.raises(BertJaxError, match="2 numbers"):
        kind("regression", "a", "b")


def examples(*labels):
    return [Example("text", label, f"dev.csv row {i}") for i, label in enumerate(labels, 2)]


@pytest.mark.parametrize(
    ("theirs", "ours", "known", "expected"),
    [
        (("no",), ("no", "yes"), (), {"no": "no"}),
        (("1", "0"), ("LABEL_0", "LABEL_1"), (), {"0": "LABEL_0", "1": "LABEL_1"}),
        (("b",), ("LABEL_0", "LABEL_1"), ("b", "a"), {"b": "LABEL_0"}),
        (("Negative",), ("NEGATIVE", "POSITIVE"), (), {"Negative": "NEGATIVE"}),
        (("0", "1"), ("negative", "positive"), (), None),
        (("0", "2"), ("LABEL_0", "LABEL_1"), (), None),
        (("0", "LABEL_1"), ("LABEL_0", "LABEL_1"), (), None),
        (("b", "a"), ("LABEL_0", "LABEL_1"), (), None),
        (("b", "a"), ("LABEL_0", "LABEL_1"), ("a", "b", "c"), None),
        (("x",), ("X", "x ", "y"), (), {"x": "X"}),
        (("no", "maybe"), ("no", "yes"), (), {"no": "no"}),
        (("No", "maybe"), ("no", "yes"), (), {"No": "no"}),
        (("Ab",), ("aB", "AB"), (), None),
    ],
)
def test_labels_are_matched_only_where_it_is_plain(theirs, ours, known, expected):
    if expected is None:
        with pytest.raises(BertJaxError, match="row ..*id2label"):
            match_label_names(examples(*theirs), ours, known)
    else:
        found, notes = match_label_names(examples(*theirs), ours, known)
        assert found == expected and bool(notes) == any(a != b for a, b in expected.items())


def test_a_cell_that_was_not_taken_apart_is_recognised():
    with pytest.raises(BertJaxError, match="--label-separator"):
        Labels(("book", "film")).match_labels(examples(("book;film",), ("book",)))


@pytest.mark.slow
def test_scores_have_intervals(tmp_path):
    write_model(tmp_path / "model", heads=("classify",), labels=("no", "yes", "?"))
    output = bert_jax.load(tmp_path / "model").predict(SMALL_TEXTS)
    truth = [*output[:-2], "no", "yes"]
    rows = [{"text": text, "label": label} for text, label in zip(SMALL_TEXTS, truth, strict=True)]
    trial = PredictionEvalConfig(write_jsonl(tmp_path / "dev.jsonl", rows))
    evaluation = evaluate_directory(tmp_path / "model", trial)
    found = evaluation.facts
    expected = bootstrap_intervals(score_single_label(output, truth, ("no", "yes", "?")))
    assert found["intervals"] == {name: asdict(interval) for name, interval in expected.items()}
    header, accuracy, *_ = evaluation.lines[1:]
    low, high = expected["accuracy"].low, expected["accuracy"].high
    assert header.strip() == "95 % interval" and low < expected["accuracy"].value < high
    assert accuracy == f"  accuracy  {found['metrics']['accuracy']:.4f}   {low:.4f} to {high:.4f}"


@pytest.mark.slow
def test_examples_of_a_class_that_the_model_does_not_know_are_errors(tmp_path):
    write_model(tmp_path / "model", heads=("classify",), labels=("no", "yes"))
    output = bert_jax.load(tmp_path / "model").predict(SMALL_TEXTS)
    rows = [{"text": t, "label": label} for t, label in zip(SMALL_TEXTS, output, strict=True)]
    for row in rows[2:5]:
        row["label"] = "maybe"
    data = write_jsonl(tmp_path / "dev.jsonl", rows)
    scored = evaluate_model(bert_jax.load(tmp_path / "model"), data)
    assert scored.metrics["accuracy"] == 5 / 8
    assert scored.notes[0] == (
        f'the model has no label "maybe" (first in {data} row 3); examples with it count as errors: 3'
    )
    report = evaluate_with_report(tmp_path / "report", tmp_path / "model", PredictionEvalConfig(data))
    assert scored.notes[0] in report.lines
    page = (tmp_path / "report" / "report.md").read_text()
    assert "| maybe | 0.0000 | 0.0000 | 0.0000 | 3 | 0 |" in page and "Probable label errors" not in page


@pytest.mark.slow
def test_spans_of_a_type_that_the_tagger_does_not_know_are_missed(tmp_path):
    write_model(tmp_path / "model", heads=("tag",), labels=("O", "B-Y", "I-X", "B-X"))
    words = [text.split() for text in SMALL_TEXTS]
    tags = bert_jax.load(tmp_path / "model").tag_words(words)

    def scores(tags, *wanted):
        lines = ("\n".join(map(" ".join, zip(*pair, strict=True))) for pair in zip(words, tags, strict=True))
        (tmp_path / "dev.conll").write_text("\n\n".join(lines))
        scored = evaluate_model(bert_jax.load(tmp_path / "model"), str(tmp_path / "dev.conll"))
        assert scored.notes == [note.format(f"{tmp_path}/dev.conll") for note in wanted]
        return scored

    new = [*tags[:-1], ["B-product", "I-product"]]
    note = 'the model has no tag of the type "product" (first in {} row 28); spans of it count as missed: 1'
    scored = scores(new, note)
    assert scored.by_kind["product"] == {"f1": 0, "precision": 0, "recall": 0, "spans": 1}
    assert scored.metrics["recall"] < 1
    evaluation = evaluate_directory(tmp_path / "model", PredictionEvalConfig(f"{tmp_path}/dev.conll"))
    shown = evaluation.format(as_json=False)
    assert "8 examples of " in shown and "\n  product" in shown
    new[-1] = ["B-Y", "I-Y"]
    scored = scores(new, 'the model has no tag "I-Y" (first in {} row 28); words with it count as wrong: 1')
    assert scored.by_kind["Y"]["recall"] == 0
    with pytest.raises(BertJaxError, match="nothing shows which is which"):
        scores([["O"] * len(each) for each in words[:-1]] + [["B-z", "O"]])


def test_a_separator_of_labels_is_refused_where_a_text_has_one(tmp_path):
    write_model(tmp_path / "model", heads=("classify",), labels=("no", "yes"))
    data = write_jsonl(tmp_path / "dev.jsonl", [{"text": "the cat", "label": "no"}])
    columns = ExampleColumns(label_separator=";")
    with pytest.raises(BertJaxError, match="--label-separator is for a model of several labels per text"):
        evaluate_model(bert_jax.load(tmp_path / "model"), data, columns=columns)
    with pytest.raises(BertJaxError, match="--label-separator"):
        compare_models(tmp_path / "model", tmp_path / "model", data, columns)


def test_a_model_that_gives_no_labels(tmp_path):
    write_model(tmp_path)
    with pytest.raises(BertJaxError, match="mlm, nsp"):
        evaluate_model(bert_jax.load(tmp_path), "dev.csv")
