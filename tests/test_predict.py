"""The verb `predict`: each kind of answer, each way in, and what goes wrong on the way."""

import io
import itertools
import json
import sys

import pytest

import bert_jax
from bert_jax.command.predict import predictions, write
from bert_jax.data.examples.columns import Columns
from bert_jax.errors import BertJaxError
from test_evaluate import TEXTS, squad, write_lines
from test_hub import edit_config
from test_hub import write as write_model


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A model directory with the head asked for."""

    def of(head, labels=(), **config):
        path = tmp_path_factory.mktemp("model")
        write_model(path, heads=(head,), labels=labels)
        edit_config(path, **config)
        return path

    return of


@pytest.fixture(scope="module")
def classifier(directory):
    return bert_jax.load(directory("classify", ("no", "yes", "maybe")))


def typed(monkeypatch, content: bytes | str):
    content = content.encode() if isinstance(content, str) else content
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.slow
def test_classes_come_in_order_with_their_ids(classifier, tmp_path):
    rows = [{"id": i, "text": t, "label": {"never": "asked"}} for i, t in enumerate(TEXTS)]
    found = list(predictions(classifier, write_lines(tmp_path / "in.jsonl", rows)))
    expected = classifier.classify(TEXTS)
    assert [one["id"] for one in found] == [str(i) for i in range(len(TEXTS))]
    assert [one["label"] for one in found] == [one.label for one in expected]
    assert [one["score"] for one in found] == pytest.approx([one.score for one in expected], abs=1e-5)
    # The same out of a csv file without header, of which a column is the text's.
    (tmp_path / "in.csv").write_text("".join(f'{i},"{text}",?\n' for i, text in enumerate(TEXTS)))
    numbered = predictions(classifier, str(tmp_path / "in.csv"), Columns(text="1", id="0"))
    assert list(numbered) == found


def test_lines_of_standard_input(classifier, monkeypatch):
    typed(monkeypatch, "\r\n".join(TEXTS))
    plain = list(predictions(classifier, "-"))
    assert [one["label"] for one in plain] == [one.label for one in classifier.classify(TEXTS)]
    typed(monkeypatch, "\ufeff" + "".join(json.dumps({"text": text}) + "\n\n" for text in TEXTS))
    assert list(predictions(classifier, "-")) == plain


@pytest.mark.slow
def test_several_labels_and_numbers(directory, tmp_path):
    data = write_lines(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS])
    several = bert_jax.load(directory("classify", ("a", "b"), problem_type="multi_label_classification"))
    found = [[label["label"] for label in one["labels"]] for one in predictions(several, data)]
    assert found == [[label.label for label in one] for one in several.classify(TEXTS)]
    number = bert_jax.load(directory("classify", ("LABEL_0",)))
    assert [one["number"] for one in predictions(number, data)] == pytest.approx(
        number.classify(TEXTS), abs=1e-5
    )


@pytest.mark.slow
def test_tags_of_words_and_spans_of_texts(directory, tmp_path):
    model = bert_jax.load(directory("tag", ("O", "B-X", "I-X")))
    words = [text.split() for text in TEXTS]
    lists = write_lines(tmp_path / "words.jsonl", [{"tokens": each} for each in words])
    found = list(predictions(model, lists))
    assert found == [{"tags": tags} for tags in model.tag_words(words)]
    (tmp_path / "words.conll").write_text("\n\n".join("\n".join(each) for each in words))
    assert list(predictions(model, str(tmp_path / "words.conll"))) == found
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    spans = [[(s["label"], s["text"], s["start"], s["end"]) for s in one["spans"]]
             for one in predictions(model, str(tmp_path / "in.txt"))]  # fmt: skip
    assert spans == [[(s.label, s.text, s.start, s.end) for s in one] for one in model.tag(TEXTS)]


@pytest.mark.slow
def test_answers(directory, tmp_path):
    model = bert_jax.load(directory("answer"))
    texts = [text for text in TEXTS if text != "cats"]
    rows = [{"id": f"q{i}", "question": "the ?", "context": text} for i, text in enumerate(texts)]
    data = write_lines(tmp_path / "in.jsonl", rows)
    expected = model.answer("the ?", texts)
    found = list(predictions(model, data))
    assert [(a["id"], a["answer"], a["start"], a["end"]) for a in found] == [
        (f"q{i}", a.text, a.start, a.end) for i, a in enumerate(expected)
    ]
    assert list(predictions(model, squad(tmp_path / "in.json", [("the ?", text, []) for text in texts]))) == [
        one | {"id": one["id"][1:]} for one in found
    ]
    missing = model.answer("the ?", texts, may_be_missing=True)
    assert None in missing
    found = predictions(model, data, may_be_missing=True)
    assert [one["answer"] for one in found] == [one and one.text for one in missing]


@pytest.mark.slow
def test_a_stream_is_read_no_further_than_needed(classifier, monkeypatch):
    read = itertools.count()
    lines = type("Pipe", (), {"readline": lambda self, most: f"the cat sat {next(read)}\n".encode()})
    endless = type("Stdin", (), {"buffer": lines()})
    monkeypatch.setattr(sys, "stdin", endless)
    found = predictions(classifier, "-")
    for _ in range(3):
        next(found)
    assert next(read) <= 514  # a chunk; an endless stream would never return otherwise


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"text": "the cat"}\n{"text": \n', "standard input row 2 is not JSON"),
        ('{"text": "the cat"}\n{"txet": "a"}\n', 'row 2 has no column "text"; did you mean "txet"'),
        ('{"text": "the cat"}\nthe cat\n', "standard input row 2 is not JSON"),
        ("the cat\n \nthe mat\n", 'standard input row 2: column "text" is empty'),
        (b"the cat\nthe \xff\n", "standard input line 2 is not UTF-8"),
        ("", "standard input is empty"),
    ],
)
def test_bad_lines_are_named(classifier, monkeypatch, content, said):
    typed(monkeypatch, content)
    with pytest.raises(BertJaxError, match=said):
        list(predictions(classifier, "-"))


@pytest.mark.slow
def test_a_file_of_predictions_is_whole_or_not_there(directory, tmp_path, capsys):
    model = directory("classify", ("no", "yes"))
    rows = [{"text": text} for text in TEXTS]
    bad = write_lines(tmp_path / "bad.jsonl", [*rows * 100, {"text": 3}])
    with pytest.raises(BertJaxError, match='row 801: column "text" holds a number'):
        write(model, bad, str(tmp_path / "out.jsonl"))
    assert not (tmp_path / "out.jsonl").exists()
    good = write_lines(tmp_path / "good.jsonl", rows)
    write(model, good, str(tmp_path / "out.jsonl"))
    assert capsys.readouterr().err.startswith("8 predictions in ")
    write(model, good)
    assert capsys.readouterr().out == (tmp_path / "out.jsonl").read_text()
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 8
