"""Kinds of prediction: nobody else asks which one it is, and one of your own is one file."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_jax
from bert_jax.command import train as run
from bert_jax.command.predict import predictions
from bert_jax.data.examples.arrange import Target
from bert_jax.data.examples.cells import LabelCells, number_in
from bert_jax.data.examples.example import Example
from bert_jax.losses import squared_error
from bert_jax.metrics import Sums, counts
from bert_jax.predictions.calibration import NONE, Calibration
from bert_jax.predictions.fitting import HALVES, logistic, measured
from bert_jax.predictions.kind import KINDS, Kind, Outcomes, abstained
from bert_jax.predictions.view import View
from bert_jax.predictions.whole_texts import WholeTexts
from bert_jax.report.compare import compare
from bert_jax.report.evaluate import evaluate
from bert_jax.text.truncation import Reading
from test_evaluate import TEXTS, write_lines
from test_hub import write as write_model

PACKAGE = Path(__file__).parents[1] / "bert_jax"
BUILT_IN = {"classes", "labels", "number", "tags", "answers"}


def constants(nodes) -> set:
    return {node.value for node in nodes if isinstance(node, ast.Constant)}


def asks(node: ast.AST, classes: set[str]) -> bool:
    """Whether it is a branch by kind: a comparison, a case, a table of functions or an isinstance."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        of_kind = any(
            isinstance(part, ast.Attribute)
            and part.attr == "kind"
            or isinstance(part, ast.Name)
            and part.id == "kind"
            for side in sides
            for part in ast.walk(side)
        )
        listed = [item for side in sides for item in getattr(side, "elts", [])]
        named = constants([*sides, *listed])
        # "labels" and "number" are words of tables and batches too, where nothing is called a kind.
        return bool(named & (BUILT_IN if of_kind else BUILT_IN - {"labels", "number"}))
    if isinstance(node, ast.MatchValue):
        return bool(constants([node.value]) & BUILT_IN)
    if isinstance(node, ast.Dict):
        return len(constants(node.keys) & BUILT_IN) > 1
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return bool({part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)} & classes)
    return False


def branches(source: str) -> list[int]:
    classes = {KINDS[name].__name__ for name in BUILT_IN} | {"WholeTexts"}
    return [
        node.lineno for node in ast.walk(ast.parse(source)) if asks(node, classes) and hasattr(node, "lineno")
    ]


def test_every_kind_is_a_file():
    assert {path.stem for path in (PACKAGE / "predictions" / "kinds").glob("[a-z]*.py")} == BUILT_IN
    assert set(KINDS.names()) >= BUILT_IN and all(KINDS[name].name == name for name in BUILT_IN)


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


# A kind of one's own: stars from 1 to 5, predicted as a number that is rounded, right where the star is.


@dataclass(frozen=True)
class Stars(WholeTexts):
    name = "stars"
    best = "exact"
    cells = LabelCells("stars", lambda separator: lambda place, value: int(number_in(place, value)))

    @classmethod
    def learn(cls, train, known=()):
        return cls(("STARS",))

    def check(self, examples):
        assert all(1 <= example.label <= 5 for example in examples)

    def matched(self, examples, known=()):
        return self, []

    def truth(self, example: Example) -> int:
        return example.label

    value = truth

    @property
    def target(self) -> Target:
        return Target("float32")

    def shown(self, values: Mapping[str, Any]):
        return f"{values['labels']} stars", {}

    def loss(self, logits, batch, weight, smoothing=0.0):
        return squared_error(logits[..., 0], batch["labels"] - 3.0, weight)

    def predicted(self, raw, calibration: Calibration) -> int:
        return int(np.clip(round(3 + float(raw[0])), 1, 5))

    def sums(self, predicted, truth) -> Sums:
        apart = np.abs(np.array(predicted, float) - truth)
        rows = np.stack([apart == 0, apart <= 1, np.ones(len(apart))], 1).astype(float)
        return Sums(
            rows, lambda sums: {n: sums[..., i] / sums[..., 2] for i, n in enumerate(("exact", "near"))}
        )

    def confidence(self, raws, calibration: Calibration):
        """The nearer to the middle of a star, the surer."""
        numbers = 3 + np.array([float(raw[0]) for raw in raws])
        odds = 2 - 8 * np.abs(numbers - np.clip(np.round(numbers), 1, 5))
        heat = calibration.temperatures[0] if calibration.learnt else 1.0
        return 1 / (1 + np.exp(-(odds / heat + calibration.offset)))

    def calibrate(self, given: Outcomes) -> Calibration:
        right, (first, rest) = np.equal(given.predicted, given.truth), HALVES
        before = self.confidence(given.raws, NONE)
        slope, offset = logistic(np.log(before / (1 - before))[first], right[first])
        fitted = Calibration(self.name, (), (1 / slope,), offset=offset)
        after = self.confidence(given.raws, fitted)[rest]
        return measured(fitted, len(right), before[rest], after, right[rest], after, right[rest])

    def words(self, prediction, example) -> str:
        return f"{prediction} stars"

    def view(self, given: Outcomes) -> View:
        before, after = (self.confidence(given.raws, c) for c in (NONE, given.calibration))
        right, sides = np.equal(given.predicted, given.truth), (given.predicted, given.truth)
        return View(
            before, after, right, after, right,
            curves={"texts": (after, right, len(right))},
            counts=counts(*([[star] for star in side] for side in sides)),
            pairs=[(str(t), str(p)) for p, t in zip(*sides, strict=True)],
            shown=self.show(given, after, right),
        )  # fmt: skip

    def result(self, raw, calibration):
        return self.predicted(raw, calibration), float(self.confidence([raw], calibration)[0])

    def as_json(self, raw, calibration, enough):
        stars, score = self.result(raw, calibration)
        return {"stars": stars, "score": score} | abstained(score, enough)


@pytest.fixture
def stars():
    KINDS["stars"] = Stars
    yield
    del KINDS["stars"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile", "stars")
def test_a_kind_of_ones_own_is_trained_scored_calibrated_reported_predicted_and_compared(tmp_path):
    write_model(tmp_path / "m", heads=("mlm",))
    rng = np.random.default_rng(0)
    rows = [
        {"text": f"{n} {rng.choice(TEXTS)}", "label": int(rng.choice([2, 3, 5], p=[0.1, 0.2, 0.7]))}
        for n in range(240)
    ]
    data = write_lines(tmp_path / "train.jsonl", rows)
    given = ["kind=stars", f"init={tmp_path / 'm'}", f"data.train={data}", "data.max_length=16", "epochs=1",
             "data.calibration_share=0.25"]  # fmt: skip
    for n, rate in enumerate((0.5, 1e-9)):
        assert run.start("configs/classify.py", [*given, f"optimizer.rate={rate}"], str(tmp_path / f"run{n}"))
    directories = [tmp_path / f"run{n}" / "model" for n in (0, 1)]
    model = bert_jax.load(directories[0])
    assert isinstance(model.kind, Stars) and model.calibration.kind == "stars"
    scored = evaluate(model, data)
    assert scored.task == "classify (stars)" and scored.metrics.keys() == {"exact", "near"}
    objects = list(predictions(model, data))
    right = [prediction["stars"] == row["label"] for prediction, row in zip(objects, rows, strict=True)]
    assert scored.metrics["exact"] == pytest.approx(np.mean(right))
    assert model.classify(TEXTS[0]) == model.kind.predicted(model.outcomes(model.kind, TEXTS[0]), NONE)
    report = (tmp_path / "run0" / "report" / "report.md").read_text()
    assert "classify (stars) on 24 examples" in report and "### Least confident predictions" in report
    assert "Expected calibration error of the texts" in report and re_stars(report)
    apart = json.loads(compare(*directories, data, as_json=True))
    assert apart["differences"].keys() == {"exact", "near"} and apart["better"] + apart["worse"]
    assert "5 stars: [CLS]" in run.inspect("configs/classify.py", given, 0, 32)


def re_stars(report: str) -> bool:
    return all(
        f"![{name}]" in report for name in ("confusion matrix", "reliability diagram: accuracy by confidence")
    )


def test_a_kind_that_nobody_knows():
    layout = type(
        "Layout", (), {"published": {"prediction_kind": "starz"}, "heads": ("classify",), "labels": ("x",)}
    )
    with pytest.raises(bert_jax.errors.BertJaxError, match='no kind of prediction "starz"'):
        bert_jax.predictions.kind.kind_of(layout)


def test_windows_of_a_text_are_one_outcome():
    kind: Kind = Stars(("STARS",))
    model = type("T", (), {"encode": lambda self, texts, max_length: [f"{t}:{max_length}" for t in texts]})()
    (windows,) = kind.windows(model, ["a"], Reading(7))
    assert windows.encodings == ["a:7"]
    assert kind.raw("a", windows, [np.array([1.0]), np.array([3.0])]).tolist() == [2.0]
