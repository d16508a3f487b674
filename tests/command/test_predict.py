"""The verb `predict`: each kind of answer, each way in, and what goes wrong on the way."""

import itertools
import json
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import bert_jax
from bert_jax.command import main as cli
from bert_jax.core.arguments import use_config_spelling
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.finetuning.example_splits import split_examples
from bert_jax.finetuning.finetune_config import ExamplesConfig
from bert_jax.inference.row_predictor import PredictionOptions
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.kind import KINDS
from bert_jax.predictions.prediction_input import PredictionInput
from bert_jax.predictions.selective import CoverageLevel
from bert_jax.text.csv_lines import csv_lines
from bert_jax.text.tables import read_table_rows
from tests.support.prediction_rows import predict_rows
from tests.support.small_models import SMALL_TEXTS
from tests.support.standard_input import set_stdin
from tests.support.tables import write_jsonl, write_squad


@pytest.mark.slow
def test_classes_come_in_order_with_their_ids(small_classifier, tmp_path):
    rows = [{"id": i, "text": t, "label": {"never": "asked"}} for i, t in enumerate(SMALL_TEXTS)]
    found = list(predict_rows(small_classifier, write_jsonl(tmp_path / "in.jsonl", rows)))
    expected = small_classifier.classify(SMALL_TEXTS)
    assert [one["id"] for one in found] == [str(i) for i in range(len(SMALL_TEXTS))]
    assert [one["label"] for one in found] == [one.label for one in expected]
    assert [one["score"] for one in found] == pytest.approx([one.score for one in expected], abs=1e-5)
    # The same out of a csv file without header, of which a column is the text's.
    (tmp_path / "in.csv").write_text("".join(f'{i},"{text}",?\n' for i, text in enumerate(SMALL_TEXTS)))
    numbered = predict_rows(small_classifier, str(tmp_path / "in.csv"), ExampleColumns(text="1", id="0"))
    assert list(numbered) == found


@pytest.mark.slow
def test_lines_of_standard_input(small_classifier, monkeypatch):
    set_stdin(monkeypatch, "\r\n".join(SMALL_TEXTS))
    plain = list(predict_rows(small_classifier, "-"))
    assert [one["label"] for one in plain] == small_classifier.predict(SMALL_TEXTS)
    set_stdin(monkeypatch, "\ufeff" + "".join(json.dumps({"text": text}) + "\n\n" for text in SMALL_TEXTS))
    assert list(predict_rows(small_classifier, "-")) == plain


@pytest.mark.slow
def test_several_labels_and_numbers(headed_model, tmp_path):
    data = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in SMALL_TEXTS])
    several = bert_jax.load(headed_model("classify", ("a", "b"), problem_type="multi_label_classification"))
    found = [[label["label"] for label in one["labels"]] for one in predict_rows(several, data)]
    assert found == [[label.label for label in one] for one in several.classify(SMALL_TEXTS)]
    number = bert_jax.load(headed_model("classify", ("LABEL_0",)))
    assert [one["number"] for one in predict_rows(number, data)] == pytest.approx(
        number.predict(SMALL_TEXTS), abs=1e-5
    )


@pytest.mark.slow
def test_tags_of_words_and_spans_of_texts(headed_model, tmp_path):
    model = bert_jax.load(headed_model("tag", ("O", "B-X", "I-X")))
    words = [text.split() for text in SMALL_TEXTS]
    lists = write_jsonl(tmp_path / "words.jsonl", [{"tokens": each} for each in words])
    found = list(predict_rows(model, lists))
    assert found == [{"tags": tags} for tags in model.tag_words(words)]
    (tmp_path / "words.conll").write_text("\n\n".join("\n".join(each) for each in words))
    assert list(predict_rows(model, str(tmp_path / "words.conll"))) == found
    pairs = write_jsonl(tmp_path / "pairs.jsonl", [{"text": text, "pair": "no"} for text in SMALL_TEXTS])
    (tmp_path / "in.txt").write_text("\n".join(SMALL_TEXTS))
    assert list(predict_rows(model, pairs)) == list(predict_rows(model, str(tmp_path / "in.txt")))
    with pytest.raises(BertJaxError, match='--text-pair.*"pair"'):
        list(predict_rows(model, pairs, ExampleColumns(text_pair="pair")))
    spans = [[(s["label"], s["text"], s["start"], s["end"]) for s in one["spans"]]
             for one in predict_rows(model, str(tmp_path / "in.txt"))]  # fmt: skip
    assert spans == [[(s.label, s.text, s.start, s.end) for s in one] for one in model.tag(SMALL_TEXTS)]


@pytest.mark.slow
def test_answers(headed_model, tmp_path, monkeypatch):
    model = bert_jax.load(headed_model("answer"))
    texts = [text for text in SMALL_TEXTS if text != "cats"]
    rows = [{"id": f"q{i}", "question": "the ?", "context": text} for i, text in enumerate(texts)]
    data = write_jsonl(tmp_path / "in.jsonl", rows)
    expected = model.answer("the ?", texts)
    found = list(predict_rows(model, data))
    assert [(a["id"], a["answer"], a["start"], a["end"]) for a in found] == [
        (f"q{i}", a.text, a.start, a.end) for i, a in enumerate(expected)
    ]
    assert list(
        predict_rows(model, write_squad(tmp_path / "in.json", [("the ?", text, []) for text in texts]))
    ) == [one | {"id": one["id"][1:]} for one in found]
    missing = model.answer("the ?", texts, allow_no_answer=True)
    assert None in missing
    found = predict_rows(model, data, options=PredictionOptions(allow_no_answer=True))
    assert [one["answer"] for one in found] == [one and one.text for one in missing]
    set_stdin(monkeypatch, "Who?\n")
    with pytest.raises(BertJaxError, match='row 1.*"question"'):
        list(predict_rows(model, "-"))


@pytest.mark.parametrize("name", ["answer", "Answers"])
def test_answers_that_are_there_are_not_read(name, tmp_path):
    rows = [{"question": "Who?", "context": "Ann sleeps.", name: "Eve"}]
    data = write_jsonl(tmp_path / "in.jsonl", rows)
    (example,) = PredictionInput(data).examples(ExampleColumns(), KINDS["answers"].reader)
    assert (example.text, example.label) == (("Who?", "Ann sleeps."), None)


@pytest.mark.slow
def test_a_stream_is_read_no_further_than_needed(small_classifier, monkeypatch):
    read = itertools.count()
    lines = type("Pipe", (), {"readline": lambda self, most: f"the cat sat {next(read)}\n".encode()})
    endless = type("Stdin", (), {"buffer": lines()})
    monkeypatch.setattr(sys, "stdin", endless)
    found = predict_rows(small_classifier, "-")
    for _ in range(3):
        next(found)
    assert next(read) <= 514  # a chunk; an endless stream would never return otherwise


@pytest.mark.parametrize(
    ("content", "printed"),
    [
        ('{"text": "the cat"}\n{"text": \n', "row 2.*JSON"),
        ('{"text": "the cat"}\n{"txet": "a"}\n', 'did you mean "txet"'),
        ('{"text": "the cat"}\nthe cat\n', "row 2.*JSON"),
        ("the cat\n \nthe mat\n", 'row 2.*"text"'),
        (b"the cat\nthe \xff\n", "line 2.*UTF-8"),
        ("", "empty"),
    ],
)
def test_bad_lines_are_named(small_classifier, monkeypatch, content, printed):
    set_stdin(monkeypatch, content)
    with pytest.raises(BertJaxError, match=printed):
        list(predict_rows(small_classifier, "-"))


@pytest.mark.slow
def test_a_file_of_predictions_is_whole_or_not_there(headed_model, tmp_path, capsys):
    command = ["predict", "--model", str(headed_model("classify", ("no", "yes"))), "--input"]
    rows = [{"text": text} for text in SMALL_TEXTS]
    bad, output = write_jsonl(tmp_path / "bad.jsonl", [*rows * 100, {"text": 3}]), tmp_path / "out.jsonl"
    assert cli.main([*command, bad, "--output", str(output)]) == 1
    assert "row 801" in (told := capsys.readouterr().err) and '"text"' in told
    assert not output.exists()
    good = write_jsonl(tmp_path / "good.jsonl", rows)
    assert cli.main([*command, good, "--output", str(output)]) == 0
    assert capsys.readouterr().err.startswith("8 predictions in ")
    assert cli.main([*command, good]) == 0
    assert capsys.readouterr().out == output.read_text()
    assert len(output.read_text().splitlines()) == 8


@pytest.mark.slow
@pytest.mark.parametrize(("head", "labels"), [("classify", ("no", "yes")), ("tag", ("CAT", "DOG"))])
def test_abstentions_are_counted_where_a_precision_is_asked_for(headed_model, tmp_path, capsys, head, labels):
    model = bert_jax.load(headed_model(head, labels))
    predict = model.classify if head == "classify" else lambda texts: sum(model.tag(texts), [])
    middle = float(np.median([one.score for one in predict(SMALL_TEXTS)]))
    levels = (CoverageLevel(middle, 1000, 990), CoverageLevel(0.1, 2000, 1500))
    model.calibration = Calibration(model.kind.name, labels, (1.0,), levels=levels)
    model.save(tmp_path / "model")
    # A column of the input counts for nothing, whatever its name.
    rows = [{"text": text, "abstained": True, "spans": [[0, 3]]} for text in SMALL_TEXTS]
    data = write_jsonl(tmp_path / "in.jsonl", rows)
    command = ["predict", "--model", str(tmp_path / "model"), "--input", data, "--output"]
    for name in ("out.jsonl", "out.csv"):
        assert cli.main([*command, str(tmp_path / name)]) == 0
        assert capsys.readouterr().err == f"8 predictions in {tmp_path / name}\n"
        for ranking in ([], ["--rank-for-labelling"]):
            assert cli.main([*command, str(tmp_path / name), "--min-precision", "0.95", *ranking]) == 0
            told = f"8 predictions in {tmp_path / name}; the model abstains from 4\n"
            assert capsys.readouterr().err == told


# tables


def rows_of(path) -> list[dict]:
    return [row for _, row in read_table_rows(str(path))]


@pytest.mark.slow
def test_a_table_of_predictions_keeps_the_columns_of_the_input(headed_model, tmp_path, capsys):
    path = str(headed_model("classify", ("no", "yes")))
    rows = [
        {"Id": str(i), "text": text, "label": "?", "predicted": 'said "so,\n'}
        for i, text in enumerate(SMALL_TEXTS)
    ]
    (tmp_path / "in.csv").write_text("\n".join(csv_lines(rows)) + "\n")
    source, output = str(tmp_path / "in.csv"), str(tmp_path / "out.csv")
    command = ["predict", "--model", path, "--output"]
    assert cli.main([*command, output, "--input", source]) == 0
    assert capsys.readouterr().err.startswith("8 predictions in ")
    expected = [
        row | {"predicted_label": p["label"], "predicted_score": str(p["score"]), "predicted_margin": str(p["margin"])}
        for row, p in zip(rows, predict_rows(bert_jax.load(path), source), strict=True)
    ]  # fmt: skip
    assert rows_of(tmp_path / "out.csv") == expected
    assert cli.main([*command, str(tmp_path / "again.csv"), "--input", output]) == 1
    assert re.search('out.csv.*row 2.*"predicted_label"', capsys.readouterr().err)
    assert not (tmp_path / "again.csv").exists()


def test_rows_that_are_skipped_stand_beside_no_prediction_of_others(small_classifier, tmp_path):
    rows = [{"id": i, "text": text if i % 3 else " "} for i, text in enumerate(SMALL_TEXTS)]
    data, columns = write_jsonl(tmp_path / "in.jsonl", rows), ExampleColumns(skip_bad=True)
    with pytest.warns(match="3 of 8.* row 1"):
        found = list(predict_rows(small_classifier, data, columns, in_table=True))
    assert [{name: row[name] for name in ("id", "text")} for row in found] == [
        rows[i] for i in (1, 2, 4, 5, 7)
    ]
    expected = small_classifier.predict([row["text"] for row in found])
    assert [row["predicted_label"] for row in found] == expected
    options = PredictionOptions(row_numbers=True)
    with pytest.warns(match="3 of 8"):
        numbered = list(predict_rows(small_classifier, data, columns, options))
    assert [row["row"] for row in numbered] == [2, 3, 5, 6, 8]
    with pytest.warns(match="3 of 8"):
        in_table = list(predict_rows(small_classifier, data, columns, options, in_table=True))
    assert [row["row"] for row in in_table] == [2, 3, 5, 6, 8]


@pytest.mark.slow
def test_verbs_and_training_skip_bad_rows_if_told_to(headed_model, tmp_path, capsys):
    model = str(headed_model("classify", ("no", "yes")))
    rows = [{"text": f"{text} {n}", "label": "yes"} for n in range(3) for text in SMALL_TEXTS] + [
        {"text": ""}
    ]
    data = write_jsonl(tmp_path / "in.jsonl", rows)
    for command in (["predict", "--input"], ["evaluate", "--data"]):
        assert cli.main([command[0], "--model", model, command[1], data]) == 1
        assert "row 25" in (told := capsys.readouterr().err) and "--skip-bad" in told
        assert cli.main([command[0], "--model", model, command[1], data, "--skip-bad"]) == 0
        assert "1 of 25" in capsys.readouterr().err
    run = SimpleNamespace(
        prediction_kind=KINDS["classes"],
        data=ExamplesConfig(train=data, columns=ExampleColumns(skip_bad=True), folds=0),
    )
    with pytest.warns(match="1 of 25"):
        parts = split_examples(run)
    assert len(parts.train) + len(parts.validation) == 24
    run.data = replace(run.data, columns=ExampleColumns())
    advice = "bad rows: 1 of 25, which --config.data.columns.skip_bad=True skips"
    with use_config_spelling(), pytest.raises(BertJaxError, match=advice):
        split_examples(run)


@pytest.mark.slow
def test_predictions_of_every_kind_are_cells(headed_model, tmp_path):
    data = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in SMALL_TEXTS])
    several = bert_jax.load(headed_model("classify", ("a", "b"), problem_type="multi_label_classification"))
    cells = [row["predicted_labels"] for row in predict_rows(several, data, in_table=True)]
    assert cells == [",".join(label.label for label in labels) for labels in several.classify(SMALL_TEXTS)]
    tagger = bert_jax.load(headed_model("tag", ("O", "B-X", "I-X")))
    words = [text.split() for text in SMALL_TEXTS]
    lists = write_jsonl(tmp_path / "words.jsonl", [{"tokens": each} for each in words])
    tagged = list(map(json.dumps, csv_lines(predict_rows(tagger, lists, in_table=True))))
    for line, texts, tags in zip(tagged[1:], words[1:], tagger.tag_words(words)[1:], strict=True):
        assert line == json.dumps(f"{' '.join(texts)},{' '.join(tags)}")
    # What is no table has a column of its texts.
    (tmp_path / "words.conll").write_text("\n\n".join("\n".join(each) for each in words))
    assert [
        row["text"] for row in predict_rows(tagger, str(tmp_path / "words.conll"), in_table=True)
    ] == SMALL_TEXTS
    finder = bert_jax.load(headed_model("answer"))
    asked = [{"id": f"q{i}", "question": "the ?", "context": text} for i, text in enumerate(SMALL_TEXTS[:6])]
    (tmp_path / "q.json").write_text(json.dumps(asked))
    answers = list(
        predict_rows(
            finder, str(tmp_path / "q.json"), options=PredictionOptions(allow_no_answer=True), in_table=True
        )
    )
    assert {row["predicted_answer"] is None for row in answers} == {True, False}
    assert {tuple(row) for row in answers} == {
        ("id", "question", "context", *(f"predicted_{name}" for name in ("answer", "start", "end", "score")))
    }


def test_lines_of_csv_are_read_as_they_were_written(tmp_path):
    rows = [{"a b": 'x, "y"', "c": "two\nlines\r"}, {"a b": "", "c": "é;\t"}]
    (tmp_path / "a.csv").write_text("\n".join(csv_lines(rows)) + "\n", newline="")
    assert rows_of(tmp_path / "a.csv") == rows
    odd = [{"a": None, "b": True, "c": [{"d": 1}], "e": 1.5}]
    assert list(csv_lines(odd)) == ['a,b,c,e\n,true,"[{""d"": 1}]",1.5']
    with pytest.warns(match='"b"'):
        assert list(csv_lines([{"a": 1}, {"b": 2}, {"c": 3}])) == ["a\n1", '""', '""']


# pipes


def test_a_line_of_a_pipe_is_answered_before_the_next_comes(small_classifier, stdin_pipe):
    found = predict_rows(small_classifier, "-", ExampleColumns(skip_bad=True))
    with pytest.warns(match="3 of 6"):
        for text in SMALL_TEXTS[:3]:
            # Neither blank lines nor bad rows hold an answer up.
            stdin_pipe.write(json.dumps({"text": text}) + '\n\n{"text": ""}\n')
            assert next(found)["label"] == small_classifier.predict(text)
            assert not stdin_pipe.closed
        stdin_pipe.close()
        assert list(found) == []


def test_many_lines_of_a_pipe_are_answered_together(small_classifier, stdin_pipe, monkeypatch):
    expected = small_classifier.predict(SMALL_TEXTS * 10)
    sizes, run = [], small_classifier.run

    def counted(encodings, program, beside):
        sizes.append(len(encodings))
        return run(encodings, program, beside)

    monkeypatch.setattr(small_classifier, "run", counted)
    stdin_pipe.write("\n".join(SMALL_TEXTS * 10))
    stdin_pipe.close()
    assert [one["label"] for one in predict_rows(small_classifier, "-")] == expected
    assert sum(sizes) == 80 and len(sizes) < 20


def test_what_is_wrong_on_a_pipe_is_told_after_the_answers_before_it(small_classifier, stdin_pipe):
    stdin_pipe.write("the cat\n \n")
    found = predict_rows(small_classifier, "-")
    assert "label" in next(found)
    with pytest.raises(BertJaxError, match='row 2.*"text".*--skip-bad'):
        next(found)


def test_long_texts_of_a_pipe_are_told_of_once(small_classifier, stdin_pipe):
    for _ in range(3):
        stdin_pipe.write("the cat sat on the mat . " * 5 + "\n")
    stdin_pipe.close()
    with pytest.warns(match="--long-texts") as told:
        assert len(list(predict_rows(small_classifier, "-"))) == 3
    assert len(told) == 1


@pytest.mark.parametrize(
    ("names", "cells"),
    [(("sky", "war"), "sky,war"), (("law, tax", "war"), "law, tax;war"), (("a,b", "c;d"), "a,b|c;d")],
)
def test_several_labels_stand_in_a_cell_at_a_mark_that_none_of_them_holds(names, cells):
    kind = KINDS["labels"](names)
    assert kind.decoder.to_cells(np.array([5.0, 4.0]), UNCALIBRATED, None)["labels"] == cells
