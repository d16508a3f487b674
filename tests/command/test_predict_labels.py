"""What `predict` says of single labels: precisions, probabilities, and spans that are marked in their text."""

import io
import re

import numpy as np
import pytest

import bert_jax
from bert_jax.command import main as cli
from bert_jax.core.errors import BertJaxError
from bert_jax.inference import row_predictor
from bert_jax.inference.row_predictor import PredictionOptions, RowPredictor, write_rows
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.metrics.tagged_spans import extract_spans
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.selective import CoverageLevel, LabelLevels
from tests.support.prediction_rows import predict_rows
from tests.support.small_models import SMALL_TEXTS
from tests.support.tables import write_jsonl


def with_every_label(model, head: str):
    """The model with biases by which it predicts each of its labels for some of the texts."""
    raw = [outcome.raw for outcome in OutcomePipeline(model, model.kind)(SMALL_TEXTS)]
    logits = np.concatenate([getattr(one, "logits", np.atleast_2d(one)) for one in raw])
    dense = model.params[head]["dense"]
    moved = dense | {"bias": np.asarray(dense["bias"]) - np.median(logits, axis=0)}
    return model.with_params(model.params | {head: {"dense": moved}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "labels", "config"),
    [("classify", ("no", "yes"), {}), ("classify", ("no", "yes"), {"problem_type": "multi_label_classification"}),
     ("tag", ("CAT", "DOG"), {})],
)  # fmt: skip
def test_a_precision_of_one_label_concerns_no_other(headed_model, tmp_path, head, labels, config):
    model = with_every_label(bert_jax.load(headed_model(head, labels, **config)), head)
    data = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in SMALL_TEXTS])

    def parts(rows) -> list[dict]:
        """The labels or spans of all rows, or the rows themselves."""
        return sum((row.get("labels") or row.get("spans") or [row] for row in rows), [])

    plain = [part for part in parts(predict_rows(model, data)) if "label" in part]
    best = max(plain, key=lambda part: part["score"])
    named, enough = best["label"], best["score"] - 1e-6
    assert any(part["label"] != named for part in plain), "and less probable"
    levels = (CoverageLevel(enough, 1000, 990), CoverageLevel(0.01, 2000, 1500))
    by_label = (LabelLevels(named, 2000, levels, (0.5, 0.75)),)
    model.calibration = Calibration(model.kind.name, labels, (1.0,), by_label=by_label)
    options = PredictionOptions(precision={named: 0.95})
    rows = list(predict_rows(model, data, options=options))
    marked = [part for part in parts(rows) if "label" in part]
    doubtful = [part["label"] == named and part["score"] < enough for part in marked]
    assert [part["abstained"] for part in marked] == doubtful and any(doubtful) and not all(doubtful)
    cells = list(predict_rows(model, data, options=options, in_table=True))
    if head == "tag":
        assert cells[0]["predicted_spans"] == rows[0]["spans"]
    elif config:
        kept = [[one["label"] for one in row["labels"] if not one["abstained"]] for row in rows]
        assert [
            cell["predicted_labels"].split(",") if cell["predicted_labels"] else [] for cell in cells
        ] == kept
        assert [cell["predicted_abstained"] for cell in cells] == [
            any(one["abstained"] for one in row["labels"]) for row in rows
        ]
        answers = model.classify(SMALL_TEXTS, min_precision={named: 0.95})
        assert [[one.label for one in of_text] for of_text in answers] == kept
    else:
        answers = model.classify(SMALL_TEXTS, min_precision={named: 0.95})
        assert [answer is None for answer in answers] == doubtful


@pytest.mark.slow
def test_a_precision_of_a_label_is_told_with_its_threshold_and_recall(headed_model, tmp_path, capsys):
    model = bert_jax.load(headed_model("classify", ("no", "yes")))
    by_label = tuple(
        LabelLevels(label, 400, (CoverageLevel(0.5, 400, 398),), (0.755,)) for label in ("no", "yes")
    )
    model.calibration = Calibration("classes", ("no", "yes"), (1.0,), by_label=by_label)
    model.save(tmp_path / "model")
    data = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in SMALL_TEXTS])
    command = [
        "predict",
        "--model",
        str(tmp_path / "model"),
        "--input",
        data,
        "--output",
        str(tmp_path / "o.jsonl"),
    ]
    assert cli.main([*command, "--min-precision", "yes=0.95", "no=0.9"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == (
        '"yes": a precision of 0.95 is guaranteed from a probability of 0.5000 on, which finds 75.5% of its 400 '
        "calibration examples"
    )
    assert told[1].startswith('"no": a precision of 0.9 ') and told[2].endswith("; the model abstains from 0")
    for given, output in (
        (["yse=0.9"], 'no label "yse"; did you mean "yes"?'), (["0.9", "yes=0.9"], "one precision of all"),
        (["yes=0.9", "yes=0.8"], "one precision of all"), (["yes=0.999"], 'for "yes" cannot be guaranteed'),
    ):  # fmt: skip
        assert cli.main([*command, "--min-precision", *given]) == 1
        assert output in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main([*command, "--min-precision", "yes=2"])


@pytest.mark.slow
def test_the_probability_of_every_label_is_written(headed_model, tmp_path):
    data = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in SMALL_TEXTS])
    options = PredictionOptions(probabilities=True)
    for problem in ("single_label_classification", "multi_label_classification"):
        model = bert_jax.load(headed_model("classify", ("no", "yes"), problem_type=problem))
        likely = [dict(zip(("no", "yes"), row, strict=True)) for row in model.predict_proba(SMALL_TEXTS)]
        rows = list(predict_rows(model, data, options=options))
        assert [row["probabilities"] for row in rows] == [pytest.approx(one, abs=1e-6) for one in likely]
        for cells, row in zip(predict_rows(model, data, options=options, in_table=True), rows, strict=True):
            columns = {f"predicted_probability_{label}": p for label, p in row["probabilities"].items()}
            assert columns.items() <= cells.items()
    tagger = bert_jax.load(headed_model("tag", ("O", "B-X", "I-X")))
    with pytest.raises(BertJaxError, match='"tags" have no probability for each label'):
        list(predict_rows(tagger, data, options=options))


def test_a_tagger_marks_the_text_on_a_terminal(headed_model, tmp_path, monkeypatch):
    tagger = bert_jax.load(headed_model("tag", ("O", "B-X", "I-X")))
    rows = [{"id": n, "text": text} for n, text in enumerate(SMALL_TEXTS)]
    data, words = write_jsonl(tmp_path / "in.jsonl", rows), [text.split() for text in SMALL_TEXTS]
    lists = write_jsonl(tmp_path / "words.jsonl", [{"tokens": each} for each in words])

    def lines(source: str) -> list[str]:
        predictor = RowPredictor(tagger, in_terminal=True)
        file = io.StringIO()
        write_rows(predictor, row_predictor.predict_rows(predictor, source), file)
        return file.getvalue().splitlines()

    plain = lines(data)
    for n, (line, spans) in enumerate(zip(plain, tagger.tag(SMALL_TEXTS), strict=True)):
        marked = SMALL_TEXTS[n]
        for span in reversed(spans):
            marked = f"{marked[: span.end]} [X]{marked[span.end :]}"
        assert line == f"{n}  {marked}"
    assert any("[X]" in line for line in plain)
    assert [line.count("[X]") for line in lines(lists)] == [
        len(list(extract_spans(tags))) for tags in tagger.tag_words(words)
    ]
    monkeypatch.setattr("bert_jax.predictions.text_spans.is_coloured", lambda: True)
    coloured = lines(data)
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in coloured] == plain and coloured != plain
