"""Measuring from Python gives the objects of the command's --json, for directories and for loaded models."""

import json
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.predictions.out_of_scope import OutOfScopeDetector, save_detector
from bert_jax.report.evaluation import Evaluation
from tests.support.small_models import SMALL_TEXTS, write_model

pytestmark = pytest.mark.slow


@pytest.fixture
def printed(capsys):
    """What a command prints as JSON."""

    def run(*words):
        capsys.readouterr()
        assert main(["evaluate", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Two classifiers, a cross-encoder, an embedder, and a table for each."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "a", heads=("classify",), labels=("bad", "good"))
    save_detector(tmp_path / "a", OutOfScopeDetector.from_vectors(np.eye(8)[:3], np.linspace(0.5, 1, 99)))
    write_model(tmp_path / "b", heads=("classify",), labels=("good", "bad"))
    write_model(tmp_path / "judge", heads=("classify",), labels=("LABEL_0",))
    write_model(tmp_path / "embedder")
    tables = {
        "labels": [{"review": text, "label": "good" if n % 3 else "bad"} for n, text in enumerate(SMALL_TEXTS)],
        "pairs": [{"anchor": SMALL_TEXTS[n], "positive": SMALL_TEXTS[n + 4]} for n in range(4)],
        "graded": [{"query": "the cat", "document": text, "label": n % 2} for n, text in enumerate(SMALL_TEXTS)],
    }  # fmt: skip
    for name, rows in tables.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "judged").mkdir()
    (tmp_path / "judged/corpus.jsonl").touch()
    (tmp_path / "others.txt").write_text("mat mat mat\n. . .\n")
    return tmp_path


@pytest.mark.parametrize(
    ("model", "data", "options"),
    [
        ("a", "labels.jsonl", {}),
        ("a", "labels.jsonl", {"text": "review", "long_texts": "windows", "out_of_scope": "others.txt"}),
        ("judge", "graded.jsonl", {}),
        ("embedder", "pairs.jsonl", {"dimensions": 4}),
    ],
)
def test_a_model_is_measured_as_by_the_command(printed, model, data, options):
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    expected = printed("--model", model, "--data", data, *flags)
    assert repr(bert_jax.evaluate(Path(model), Path(data), **options)) == repr(
        expected
    )  # the same types, too
    loaded = bert_jax.evaluate(bert_jax.load(model), data, **options)
    assert loaded == expected | {"model": "model"}


def test_two_models_are_compared_as_by_the_command(printed):
    for a, b, data in (("a", "b", "labels.jsonl"), ("embedder", "embedder", "pairs.jsonl")):
        assert repr(bert_jax.compare(a, b, data)) == repr(printed("--compare", a, b, "--data", data))
    compared = bert_jax.compare(bert_jax.load("a"), "b", "labels.jsonl")
    assert compared["models"] == ["a", "b"] and compared["scores"][0] != compared["scores"][1]


def test_a_report_names_the_call(folder):
    bert_jax.evaluate(bert_jax.load("a"), "labels.jsonl", text="review", report=folder / "page")
    report = (folder / "page/report.md").read_text()
    assert "bert_jax.evaluate(model, 'labels.jsonl', text='review', report=" in report
    for call, message in (
        (lambda: bert_jax.compare("a", "b", "labels.jsonl", report="page"), "leave report out"),
        (lambda: bert_jax.evaluate("a", "labels.jsonl", dimensions=3), "^split and dimensions are not for"),
        (
            lambda: bert_jax.evaluate("embedder", "pairs.jsonl", out_of_scope="others.txt"),
            "^out_of_scope does not apply where vectors are measured on pairs.jsonl",
        ),
        (lambda: bert_jax.evaluate("embedder", "judged", text="a"), "^text does not apply"),
        (lambda: bert_jax.evaluate("embedder", "judged", skip_bad=True), "^skip_bad does not apply"),
    ):
        with pytest.raises(BertJaxError, match=message):
            call()


def test_a_result_that_is_not_finite_is_refused():
    with pytest.raises(BertJaxError, match="^a result is not a finite number"):
        Evaluation([], {"metrics": {"mse": float("nan")}}).finite_facts()
