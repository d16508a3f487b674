"""Kinds of prediction: nobody else asks which one it is, and one of your own is one file."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import bert_jax
from bert_jax.command import train as run
from bert_jax.command.inspect import show_examples
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.finetuning.example_splits import split_examples
from bert_jax.finetuning.finetune_config import ExamplesConfig
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.predictions.calibration import UNCALIBRATED
from bert_jax.predictions.decoder import Decoder
from bert_jax.predictions.kind import KINDS, require_kind
from bert_jax.predictions.kinds.classes import ClassTargets
from bert_jax.predictions.targets import Targets
from bert_jax.report.compare import compare_models
from bert_jax.text.encoding_options import EncodingOptions
from tests.support.prediction_rows import predict_rows
from tests.support.project import PACKAGE
from tests.support.scoring import evaluate_model
from tests.support.small_models import SMALL_TEXTS, write_model
from tests.support.tables import write_jsonl

BUILT_IN = {"classes", "labels", "number", "relevance", "tags", "answers"}


KIND = f'"({"|".join(sorted(BUILT_IN))})"'
CLASSES = "|".join(["WholeTextKind", *(KINDS[name].__name__ for name in sorted(BUILT_IN))])
# A comparison, a case, a table of functions, an isinstance.
ASKS = (
    rf"\bkind(\.name)? ([!=]=|in|not in) \(?{KIND}",
    rf"\bcase {KIND}",
    rf"{{{KIND}: .*{KIND}: ",
    rf"\bisinstance\(.*(?<![.\w])({CLASSES})\b",
)


def branches(source: str) -> list[int]:
    lines = source.splitlines()
    return [n for n, line in enumerate(lines, 1) if any(re.search(asks, line) for asks in ASKS)]


def test_every_kind_is_a_file():
    assert {path.stem for path in (PACKAGE / "predictions" / "kinds").glob("[a-z]*.py")} == BUILT_IN
    assert set(KINDS.names()) >= BUILT_IN and all(KINDS[name].name == name for name in BUILT_IN)


@pytest.mark.slow
def test_only_predictions_know_their_kind():
    files = [path for path in PACKAGE.rglob("*.py") if "predictions" not in path.parts]
    asking = [f"{path}:{line}" for path in files for line in branches(path.read_text(encoding="utf-8"))]
    assert not asking


@pytest.mark.parametrize(
    "source",
    [
        'if given.kind == "number":\n    pass',
        'x = 1 if kind in ("labels", "tags") else 2',
        'match name:\n    case "classes":\n        pass',
        'f = {"classes": one, "tags": two}[name]',
        "if isinstance(kind, Tags):\n    pass",
        'if kind.name != "classes":\n    pass',
    ],
)
def test_a_branch_by_kind_is_noticed(source):
    assert branches(source)


@pytest.fixture
def stars():
    KINDS["stars"] = KINDS["tests.examples.kinds.stars"]
    yield
    del KINDS["stars"]


@pytest.mark.long
@pytest.mark.usefixtures("stars")
def test_a_kind_of_ones_own_is_trained_scored_calibrated_reported_predicted_and_compared(tmp_path):
    write_model(tmp_path / "m", heads=("mlm",))
    rng = np.random.default_rng(0)
    rows = [
        {"text": f"{n} {rng.choice(SMALL_TEXTS)}", "label": int(rng.choice([2, 3, 5], p=[0.1, 0.2, 0.7]))}
        for n in range(240)
    ]
    data = write_jsonl(tmp_path / "train.jsonl", rows)
    given = ["problem_type=stars", f"init={tmp_path / 'm'}", f"data.train={data}", "data.max_length=16", "epochs=1",
             "data.calibration_ratio=0.25"]  # fmt: skip
    for n, rate in enumerate((0.5, 1e-9)):
        run.start_training(
            "configs/classify.py", [*given, f"optimizer.learning_rate={rate}"], str(tmp_path / f"run{n}")
        )
    directories = [tmp_path / f"run{n}" / "model" for n in (0, 1)]
    model = bert_jax.load(directories[0])
    assert isinstance(model.kind, KINDS["stars"]) and model.calibration.kind == "stars"
    scored = evaluate_model(model, data)
    assert scored.task == "classify (stars)" and scored.metrics.keys() == {"exact", "near"}
    objects = list(predict_rows(model, data))
    right = [prediction["stars"] == row["label"] for prediction, row in zip(objects, rows, strict=True)]
    assert scored.metrics["exact"] == pytest.approx(np.mean(right))
    assert model.classify(SMALL_TEXTS[0]) == model.kind.decoder.predict(
        next(OutcomePipeline(model, model.kind)(SMALL_TEXTS[:1])).raw, UNCALIBRATED
    )
    with pytest.raises(BertJaxError, match='"stars"'):
        model.predict_proba(SMALL_TEXTS[0])
    report = (tmp_path / "run0" / "report" / "report.md").read_text()
    assert "classify (stars) on 24 examples" in report and "### Least confident predictions" in report
    assert "Expected calibration error of these texts" in report and "![confusion matrix]" in report
    apart = compare_models(*directories, data).facts
    assert apart["differences"].keys() == {"exact", "near"} and apart["better"] + apart["worse"]
    assert "5 stars: [CLS]" in show_examples("configs/classify.py", given, 0, 32)


def test_a_kind_that_lacks_a_method_is_refused_before_anything_is_computed():
    class WithoutScores(ClassTargets):
        score_sums = Targets.score_sums

    class Unscored(KINDS["classes"]):
        targets_class = WithoutScores

    with pytest.raises(TypeError, match="abstract method '?score_sums"):
        Unscored.from_examples([], ("no", "yes"))


@pytest.mark.parametrize("name", ["starz", "tests.examples.kinds.stars", "", 3, None, ["number"]])
def test_a_kind_that_nobody_knows(name):
    layout = SimpleNamespace(hf_config={"prediction_kind": name}, heads=("classify",), labels=("x",))
    with pytest.raises(BertJaxError, match="kind"):
        require_kind(layout)


def test_a_kind_that_would_not_be_known_when_its_model_is_opened_is_refused_before_the_run(tmp_path):
    write_model(tmp_path / "m", heads=("mlm",))
    rows = [{"text": f"text {n}", "label": n % 5 + 1} for n in range(20)]
    data = write_jsonl(tmp_path / "train.jsonl", rows)
    given = [
        "problem_type=tests.examples.kinds.stars",
        f"init={tmp_path / 'm'}",
        f"data.train={data}",
        "data.max_length=16",
    ]
    with pytest.raises(BertJaxError, match='"stars"'):
        show_examples("configs/classify.py", given, 0, 1)


def test_a_model_directory_does_not_choose_what_is_imported(tmp_path, monkeypatch):
    (tmp_path / "downloaded.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("downloaded", "downloaded.kind"):
        layout = SimpleNamespace(hf_config={"prediction_kind": name}, heads=("classify",), labels=("x",))
        with pytest.raises(BertJaxError, match="kind"):
            require_kind(layout)


def test_examples_are_kept_for_calibration_only_if_the_kind_calibrates(tmp_path):
    rows = [{"text": f"text {n}", "label": n % 5 + 1} for n in range(1200)]
    data = ExamplesConfig(train=write_jsonl(tmp_path / "train.jsonl", rows), folds=0)
    stars = KINDS["tests.examples.kinds.stars"]
    plain = type(
        "Plain",
        (stars,),
        {"decoder_class": type("PlainDecoder", (stars.decoder_class,), {"calibrate": Decoder.calibrate})},
    )
    parts = [
        split_examples(SimpleNamespace(data=data, prediction_kind=kind))
        for kind in (stars, plain, KINDS["number"])
    ]
    assert [len(part.calibration) > 0 for part in parts] == [True, False, False]
    assert UNCALIBRATED.describe_temperature() == ""


@pytest.mark.usefixtures("stars")
def test_windows_of_a_text_are_one_outcome():
    kind = KINDS["stars"](("STARS",))
    tokenizer = SimpleNamespace(
        encode=lambda texts, max_length, **_: [f"{text}:{max_length}" for text in texts]
    )
    (windows,) = kind.reader.encode(tokenizer, ["a"], EncodingOptions(7))
    assert windows.encodings == ["a:7"]
    assert kind.decoder.combine_windows("a", windows, [np.array([1.0]), np.array([3.0])]).tolist() == [2.0]


def test_numbers_that_are_all_equal_teach_nothing():
    with pytest.raises(BertJaxError, match="row 1 and all after it: only the number 0.5; there is nothing"):
        KINDS["number"].from_examples([Example(text, 0.5, f"row {n}") for n, text in enumerate("ab", 1)])
