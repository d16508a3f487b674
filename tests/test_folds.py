"""Small data: every example is predicted by a model that did not learn from it."""

import json
import re

import jax
import numpy as np
import pytest

from bert_jax.command import train as run
from bert_jax.command.folds import Folds, choose
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import folds
from bert_jax.errors import BertJaxError
from bert_jax.inference.model import load
from bert_jax.tasks import load as load_task
from test_finetune import finetune, marked, model, table, texts  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick_to_compile")
SHORT = ("optimizer.rate=3e-3", "data.max_length=32", "data.batch=16", "log.every=5", "data.rows=padded")


@pytest.fixture
def opened(model, tmp_path):  # noqa: F811
    """(task, data, config, overrides) of a run on 40 examples."""
    path = table(tmp_path / "train.csv", marked(40, 0))
    overrides = [f"init={model}", f"data.train={path}", "steps=6", "report=False", "data.folds=3", *SHORT]
    task, config = load_task("configs/classify.py", overrides)
    return *task.open(config), overrides


def values() -> dict:
    return {"task": "classify"}


def test_documents_stay_whole_and_labels_are_spread():
    examples = [
        Example(f"text {n}", "rare" if n % 8 == 0 else "often", "", "", f"d{n // 2}") for n in range(80)
    ]
    of = folds(examples, 5)
    assert all(of[n] == of[n + 1] for n in range(0, 80, 2))
    assert np.bincount(of).tolist() == [16] * 5
    assert [sum(of[n] == fold for n in range(0, 80, 8)) for fold in range(5)] == [2] * 5
    with pytest.raises(BertJaxError, match="40 documents are too few for data.folds=41"):
        folds(examples, 41)


@pytest.mark.slow
def test_a_label_has_no_part_in_its_own_prediction(opened):
    task, data, config, _ = opened
    parts = Folds(task, data, config)
    before = parts.by_probes().raws
    labels = parts.pieces[7].targets
    labels["labels"] = 1 - labels["labels"]
    after = parts.by_probes().raws
    # All examples of its fold are predicted by those of the others.
    same = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert same == (parts.of_piece == parts.of_piece[7]).tolist()


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_predictions(opened, tmp_path):
    task, data, config, overrides = opened
    parts, begun = Folds(task, data, config), []

    def until_the_third(task, data, config, path):
        begun.append(path.name)
        return len(begun) != 3 and run.run_single(task, data, config, path)

    whole = parts.by_runs("finetune", values(), overrides, tmp_path / "whole", run.run_single)
    assert parts.by_runs("finetune", values(), overrides, tmp_path / "cut", until_the_third) is None
    again = parts.by_runs("finetune", values(), overrides, tmp_path / "cut", until_the_third)
    assert begun == ["0", "1", "2", "2"], "what was predicted is not trained again"
    assert all(np.array_equal(a, b) for a, b in zip(whole.raws, again.raws, strict=True))
    assert not list(tmp_path.glob("*/folds/*/*/model")), "what is not needed any more is removed"
    damaged = tmp_path / "cut/folds/finetune/2/logits.npz"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.raises(
        BertJaxError, match="logits.npz is damaged; delete .*folds/finetune/2, and run the same command"
    ):
        parts.by_runs("finetune", values(), overrides, tmp_path / "cut", until_the_third)
    with pytest.raises(BertJaxError, match="begun with other settings: optimizer.rate"):
        parts.by_runs(
            "finetune", values(), [*overrides, "optimizer.rate=1e-4"], tmp_path / "cut", run.run_single
        )


@pytest.mark.slow
def test_a_fold_is_predicted_by_the_model_that_left_it_out(opened, tmp_path, monkeypatch):
    task, data, config, overrides = opened
    parts, likely = Folds(task, data, config), {}
    predict = Folds.predict

    def noted(self, directory, fold, path):
        indices = np.flatnonzero(self.of_piece == fold)
        texts = [self.judge.examples[i].text for i in indices]
        scores = load(directory.model).classify(texts, scores=True)
        likely.update(zip(indices.tolist(), [score["good"] for score in scores], strict=True))
        predict(self, directory, fold, path)

    def without_the_fold(task, data, config, path):
        left_out = {parts.judge.examples[i].text for i in np.flatnonzero(parts.of_piece == config.data.fold)}
        assert not left_out & {example.text for example in task.results.train}
        return run.run_single(task, data, config, path)

    monkeypatch.setattr(Folds, "predict", noted)
    outcomes = parts.by_runs("finetune", values(), overrides, tmp_path, without_the_fold)
    of_logits = [1 / (1 + np.exp(bad - good)) for bad, good in outcomes.raws]
    np.testing.assert_allclose(of_logits, [likely[i] for i in range(40)], atol=1e-5)


@pytest.mark.slow
def test_a_run_learns_from_everything_and_is_calibrated_on_everything(model, tmp_path, capsys):  # noqa: F811
    path = table(tmp_path / "train.csv", marked(60, 0))
    given = (
        "configs/classify.py",
        [f"init={model}", f"data.train={path}", "steps=12", "data.folds=3", *SHORT],
        str(tmp_path / "run"),
    )
    assert run.start(*given)
    printed = capsys.readouterr().out
    assert "60 examples or windows to train on, 3 folds" in printed
    assert re.search(r"3 folds, a probe of the frozen encoder: accuracy", printed)
    assert json.loads((tmp_path / "run/model/calibration.json").read_text())["examples"] == 60
    page = (tmp_path / "run/report/report.md").read_text()
    assert "each example predicted by a model that did not learn from it" in page and "60 examples" in page
    assert run.start(*given), "a finished run is found finished"
    assert "step 12 train" not in capsys.readouterr().out


def test_the_method_that_predicts_better_is_chosen(opened, tmp_path, monkeypatch, capsys):
    task, data, config, overrides = opened
    parts = Folds(task, data, config)
    truth = [parts.judge.kind.value(example) for example in parts.judge.examples]

    def outcomes(wrong: int, last: bool = False):
        right = np.eye(2)[truth]
        places = range(40 - wrong, 40) if last else range(wrong)
        return parts.outcomes([row[::-1] if i in places else row for i, row in enumerate(right)])

    def chosen(*wrong: int):
        of = dict(zip(("probe", "contrast", "finetune"), wrong, strict=True))
        monkeypatch.setattr(Folds, "by_probes", lambda self: outcomes(of["probe"]))
        monkeypatch.setattr(Folds, "by_runs", lambda self, method, *_: outcomes(of[method], last=True))
        found = choose(parts, values(), overrides, tmp_path, run.run_single)
        return found.method, found.outcomes.sums.scores["accuracy"]

    assert chosen(0, 0, 0) == ("probe", 1)
    assert chosen(5, 4, 0) == ("contrast", 1 - 4 / 40), "fine-tuning is for more than 20 of each class"
    assert chosen(4, 5, 0) == ("contrast", 1 - 5 / 40), "one more of 40 is chance"
    assert chosen(4, 12, 0) == ("probe", 1 - 4 / 40)
    monkeypatch.setattr("bert_jax.command.folds.FEW", 20)
    assert chosen(5, 4, 3) == ("finetune", 1 - 3 / 40)


@pytest.mark.parametrize(
    ("changes", "count"),
    [((), 5), (("data.folds=0",), 0), (("data.folds=3",), 3), (("data.calibration_share=0.5",), 0),
     (("patience=2", "checkpoints.best=accuracy"), 0)],
)  # fmt: skip
def test_a_part_is_held_out_where_that_is_asked_for(opened, changes, count):
    overrides = [override for override in opened[-1] if override != "data.folds=3"]
    task, config = load_task("configs/classify.py", [*overrides, *changes])
    assert task.open(config)[2].data.folds == count


def rows_of(kind: str) -> list[dict]:
    """Texts whose words w2 and w3 say all."""
    rows = []
    for n, text in enumerate(texts(120, (1, 3))):
        has = [name for name, there in (("w2", n % 2), ("w3", n % 3 == 0)) if there]
        label = {
            "labels": has,
            "number": 1e3 * len(has),
            "tags": ["B-X"] * len(has) + ["O"] * len(text.split()),
        }[kind]
        words = [*has, *text.split()]
        rows.append(
            {"tokens": words, "tags": label} if kind == "tags" else {"text": " ".join(words), "label": label}
        )
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "metric", "most"),
    [("labels", "f1_micro", 0.8), ("number", "spearman", 0.7), ("tags", "f1", 0.8)],
)
def test_a_probe_learns_every_kind_and_leaves_the_encoder_as_it_is(tmp_path, model, kind, metric, most):  # noqa: F811
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(kind)))
    task = "tag" if kind == "tags" else "classify"
    given = {"data.train": path, "data.heldout": path, "method": "probe", "head": "probe", "data.overlap": 8}
    given |= {} if kind == "tags" else {"kind": kind}
    (measured,) = finetune(task, model, tmp_path / "run", **given)
    assert measured[metric] > most
    before, after = load(model).params["encoder"], load(tmp_path / "run/model").params["encoder"]
    assert jax.tree.all(jax.tree.map(np.array_equal, before, after))


def test_what_a_probe_cannot_learn_is_said(model, tmp_path):  # noqa: F811
    with pytest.raises(BertJaxError, match="data.folds is 1; at least 2 are needed"):
        load_task("configs/classify.py", [f"init={model}", "data.train=x.csv", "data.folds=1"])
    with pytest.raises(BertJaxError, match="data.fold=5 is not one of data.folds=5"):
        load_task("configs/classify.py", [f"init={model}", "data.train=x.csv", "data.folds=5", "data.fold=5"])
