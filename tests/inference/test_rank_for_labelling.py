"""`predict --rank-for-labelling`: which texts are written first, and how."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.command import main as cli
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.inference import rank_for_labelling
from bert_jax.inference.rank_for_labelling import rank_by_usefulness, rank_rows
from bert_jax.inference.row_predictor import PredictionOptions, RowPredictor
from bert_jax.predictions.calibration import UNCALIBRATED
from bert_jax.predictions.kind import KINDS
from bert_jax.predictions.kinds.answers import Answer
from bert_jax.text.csv_lines import csv_lines
from bert_jax.text.tables import read_table_rows
from tests.support.prediction_rows import predict_rows
from tests.support.small_models import SMALL_TEXTS
from tests.support.standard_input import set_stdin
from tests.support.tables import write_jsonl


def groups(sizes, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(vectors, the group of each): groups of texts that are alike, around directions of their own."""
    rng, group = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    vectors = 5 * np.eye(32)[group] + 0.05 * rng.normal(size=(len(group), 32))
    return vectors, group


# The order


def test_what_the_model_is_unsure_of_comes_first():
    vectors, group = groups([20] * 6)
    doubts = np.array([0.01, 0.5, 0.02, 0.3, 0.01, 0.4])[group]
    assert group[rank_by_usefulness(vectors, doubts)[:3]].tolist() == [1, 5, 3]


def test_texts_that_are_alike_are_not_neighbours_at_the_top():
    vectors, group = groups([30, 30, 30, 30, 5, 5])
    doubts = 0.3 + 0.01 * group  # the model is most unsure of the smallest groups
    order = rank_by_usefulness(vectors, doubts)
    assert sorted(group[order[:6]]) == list(range(6)), "one of each before a second of any"
    assert set(group[order[:4]]) == {0, 1, 2, 3}, "and those first that stand for many"


def test_a_copy_of_a_text_comes_after_all_that_differ():
    vectors, _ = groups([1] * 8)
    order = rank_by_usefulness(np.concatenate([vectors, vectors]), np.full(16, 0.4))
    assert sorted(i % 8 for i in order[:8]) == list(range(8))


def test_every_text_has_one_place_and_always_the_same(monkeypatch):
    rng = np.random.default_rng(1)
    vectors, doubts = rng.normal(size=(300, 8)).astype(np.float32), rng.random(300)
    order = rank_by_usefulness(vectors, doubts)
    assert sorted(order) == list(range(300)) and np.array_equal(order, rank_by_usefulness(vectors, doubts))
    # In any blocks, and though few are chosen: the others follow by doubt.
    monkeypatch.setattr(rank_for_labelling, "AT_ONCE", 7)
    assert np.array_equal(order, rank_by_usefulness(vectors, doubts))
    monkeypatch.setattr(rank_for_labelling, "CHOSEN", 20)
    few = rank_by_usefulness(vectors, doubts)
    assert np.array_equal(few[:20], order[:20]) and (np.diff(doubts[few[20:]]) <= 0).all()


def test_the_choice_is_that_of_computing_every_gain_anew(monkeypatch):
    rng = np.random.default_rng(2)
    vectors, doubts = rng.normal(size=(120, 6)), rng.random(120)
    monkeypatch.setattr(rank_for_labelling, "TRIED", 3)
    unit = rank_for_labelling.centred_directions(vectors)
    alike, reached, expected = np.maximum(unit @ unit.T, 0) ** 2, np.zeros(120), []
    for _ in range(40):
        gains = np.maximum(alike - reached, 0) @ doubts
        gains[expected] = -1
        expected.append(int(gains.argmax()))
        reached = np.maximum(reached, alike[expected[-1]])
    assert rank_by_usefulness(vectors, doubts)[:40].tolist() == expected


# How unsure a model is


def doubt(kind: str, raw, labels=("a", "b"), **options) -> float:
    return KINDS[kind](labels, **options).decoder.uncertainty(raw, UNCALIBRATED)


def test_every_kind_but_numbers_tells_how_unsure_it_is():
    sure, unsure = np.array([9.0, -9.0], np.float32), np.array([0.1, 0.0], np.float32)
    for kind in ("classes", "labels"):
        assert doubt(kind, sure) < 0.01 < 0.4 < doubt(kind, unsure)
    words = np.stack([sure, unsure, sure, sure])
    mean = doubt("classes", unsure) / 4
    assert doubt("tags", words) == pytest.approx(mean, abs=1e-4), "the mean of its words"
    assert doubt("tags", words[:0]) == 0
    answer = Answer("the cat", 0, 7, 0.9)
    assert doubt("answers", (answer, -np.inf)) == pytest.approx(0.1)
    assert doubt("answers", (answer, 1.0), allow_no_answer=True) == 0.9, "though it gives none"
    with pytest.raises(BertJaxError, match="--rank-for-labelling"):
        doubt("number", sure[:1], ("LABEL_0",))


# The verb


PLAIN = PredictionOptions()


def rank_of(model, source, options=PLAIN, in_table=False, columns=AUTODETECT):
    return list(rank_rows(RowPredictor(model, options, in_table), str(source), columns))


@pytest.mark.slow
def test_every_row_comes_once_with_its_prediction(small_classifier, tmp_path):
    rows = [{"id": f"t{i}", "text": text} for i, text in enumerate(SMALL_TEXTS)]
    data = write_jsonl(tmp_path / "in.jsonl", rows)
    found = rank_of(small_classifier, data)
    assert [one["rank"] for one in found] == list(range(1, len(SMALL_TEXTS) + 1))
    assert {one["id"]: one["text"] for one in found} == {row["id"]: row["text"] for row in rows}
    plain = {one["id"]: one for one in predict_rows(small_classifier, data)}
    assert all(one == plain[one["id"]] | {"text": one["text"], "rank": one["rank"]} for one in found)
    assert [one["id"] for one in found] != list(plain), "in another order"
    vectors = small_classifier.encode(SMALL_TEXTS, normalize_embeddings=True)
    doubts = np.array([1 - plain[f"t{i}"]["score"] for i in range(len(SMALL_TEXTS))])
    assert [one["id"] for one in found] == [f"t{i}" for i in rank_by_usefulness(vectors, doubts)]


@pytest.mark.slow
def test_a_table_keeps_the_columns_of_the_input(headed_model, tmp_path, capsys):
    path = str(headed_model("classify", ("no", "yes")))
    rows = [{"key": str(i), "text": text, "label": ""} for i, text in enumerate(SMALL_TEXTS)]
    (tmp_path / "in.csv").write_text("\n".join(csv_lines(rows)) + "\n")
    command = ["predict", "--model", path, "--input", str(tmp_path / "in.csv"), "--rank-for-labelling"]
    assert cli.main([*command, "--output", str(tmp_path / "out.csv")]) == 0
    assert capsys.readouterr().err.startswith("8 predictions in ")
    found = [row for _, row in read_table_rows(str(tmp_path / "out.csv"))]
    assert [row["rank"] for row in found] == [str(n) for n in range(1, 9)]
    predicted = ["predicted_label", "predicted_score", "predicted_margin"]
    assert [*found[0]] == ["key", "text", "label", *predicted, "rank"]
    assert sorted((row["key"], row["text"]) for row in found) == [(row["key"], row["text"]) for row in rows]
    assert cli.main(command) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == [row["text"] for row in found]
    (tmp_path / "in.csv").write_text("\n".join(csv_lines(row | {"rank": 3} for row in rows)) + "\n")
    assert cli.main([*command, "--output", str(tmp_path / "c.csv")]) == 1
    assert "in.csv" in (told := capsys.readouterr().err) and '"rank"' in told
    assert not (tmp_path / "c.csv").exists()


@pytest.mark.slow
def test_standard_input_pairs_and_rows_that_are_skipped(small_classifier, monkeypatch, tmp_path):
    set_stdin(monkeypatch, "\n".join(SMALL_TEXTS))
    assert sorted(one["text"] for one in rank_of(small_classifier, "-")) == sorted(SMALL_TEXTS)
    rows = [{"text1": text, "text2": "" if i == 3 else "the mat"} for i, text in enumerate(SMALL_TEXTS)]
    data, columns = write_jsonl(tmp_path / "in.jsonl", rows), ExampleColumns(skip_bad=True)
    with pytest.warns(match="skipped 1 of 8 rows"):
        found = rank_of(small_classifier, data, in_table=True, columns=columns)
    assert sorted(row["text1"] for row in found) == sorted(SMALL_TEXTS[:3] + SMALL_TEXTS[4:])
    expected = small_classifier.classify([(row["text1"], row["text2"]) for row in found])
    assert [row["predicted_label"] for row in found] == [label.label for label in expected]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "labels", "config"),
    [("tag", ("O", "B-X", "I-X"), {}), ("answer", (), {})],
)
def test_models_of_other_kinds(headed_model, tmp_path, head, labels, config):
    model = bert_jax.load(headed_model(head, labels, **config))
    asked = [{"question": "the ?", "context": text, "text": text} for text in SMALL_TEXTS if text != "cats"]
    data = write_jsonl(tmp_path / "in.jsonl", asked)
    found = rank_of(model, data)
    assert [one["rank"] for one in found] == list(range(1, len(asked) + 1))
    assert len({one["text"] for one in found}) == len(asked)
