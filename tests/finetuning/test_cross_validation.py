"""Small data: every example is predicted by a model that did not learn from it."""

import io
import json
import re
import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from bert_jax.command import train as run
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import assign_folds
from bert_jax.finetuning import choose_method
from bert_jax.finetuning.cross_validation import (
    SIMILARITIES,
    FoldRuns,
    Folds,
    log_class_shares,
    read_predictions,
)
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.inference.load import load
from bert_jax.tasks import load_config
from bert_jax.training.opened_run import OpenedRun, open_run
from bert_jax.training.stop_signal import RunStopped
from tests.support.finetuning_runs import finetune
from tests.support.tables import write_csv, write_jsonl
from tests.support.texts import marked_texts, random_texts

SHORT = (
    "optimizer.learning_rate=3e-3",
    "data.max_length=32",
    "data.batch_size=16",
    "log.every=5",
    "data.batching=padded",
)


@pytest.fixture(scope="module")
def opened(encoder_path, tmp_path_factory):
    """A run on 40 examples."""
    path = write_csv(tmp_path_factory.mktemp("folds") / "train.csv", marked_texts(40, 0))
    overrides = [f"init={encoder_path}", f"data.train={path}", "steps=6", "report=False", "data.folds=3"]
    overrides += ["label_descriptions=none"]  # which of all labels decide about
    module, config = load_config("configs/classify.py", [*overrides, *SHORT])
    return open_run(module.open, config)


def test_documents_stay_whole_and_labels_are_spread():
    examples = [
        Example(f"text {n}", "rare" if n % 8 == 0 else "often", "", "", f"d{n // 2}") for n in range(80)
    ]
    of = assign_folds(examples, 5)
    assert all(of[n] == of[n + 1] for n in range(0, 80, 2))
    assert np.bincount(of).tolist() == [16] * 5
    assert [sum(of[n] == fold for n in range(0, 80, 8)) for fold in range(5)] == [2] * 5
    with pytest.raises(BertJaxError, match="data.folds=41"):
        assign_folds(examples, 41)
    same = [Example("abc"[n % 3], "x", f"row {n}") for n in range(24)]
    with pytest.raises(BertJaxError, match="3 different texts in 24 examples .* data.folds=5"):
        assign_folds(same, 5)


@pytest.mark.slow
def test_a_label_has_no_part_in_its_own_prediction(opened):
    parts = Folds(opened)
    before = parts.predict_with_probes().raw_outputs
    labels = parts.encoded_windows[7].targets
    labels["labels"] = 1 - labels["labels"]
    after = parts.predict_with_probes().raw_outputs
    # All examples of its fold are predicted by those of the others.
    same = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert same == (parts.fold_of_window == parts.fold_of_window[7]).tolist()


def test_logits_are_shifted_to_the_shares_of_all_examples(opened):
    parts = Folds(opened)
    parts.class_of_window = np.repeat([0, 1], 20)
    learnt = np.arange(40) >= 10  # 10 of the first class, 20 of the other
    few, many = np.log(0.5) - np.log([10.5 / 31, 20.5 / 31])
    np.testing.assert_allclose(parts.prior_shift(learnt), [few, many], rtol=1e-6)
    parts.task = replace(opened.task, class_weights=(1.0, 1.0))
    assert not parts.prior_shift(learnt).any(), "weights make classes alike already"


def nearest(parts: Folds, vectors: np.ndarray, fold: int) -> np.ndarray:
    """Of each example of a fold the mean cosine to the ten that are most like it in the others."""
    inside = parts.fold_of_example == fold
    cosines = np.sort(vectors[inside] @ vectors[~inside].T, axis=1)
    return cosines[:, -10:].mean(1)


def texts_of(parts: Folds) -> list[str]:
    return [example.text for example in parts.evaluator.examples]


def predict_folds(parts: Folds, workdir, count: int = 3):
    """The outcomes of the first `count` folds."""
    runs = FoldRuns(parts, "finetune", workdir)
    for _ in range(count):
        runs.predict_next()
    return runs.outcomes


@pytest.fixture(scope="module")
def fitted(opened, tmp_path_factory):
    """The runs without each fold: what they gave, and what their models give that are removed afterwards."""
    parts, likely, near = Folds(opened), np.zeros(40), np.zeros(40)
    predict, train = FoldRuns.save_predictions, OpenedRun.train

    def noted(self, directory, fold, begun):
        inside, left_out = parts.fold_of_example == fold, load(directory.model)
        scores = left_out.predict_proba(np.array(texts_of(parts))[inside].tolist())
        likely[inside] = scores[:, left_out.labels.index("good")]
        near[inside] = nearest(parts, left_out.encode(texts_of(parts), normalize_embeddings=True), fold)
        predict(self, directory, fold, begun)

    def without_the_fold(run, path):
        inside = parts.fold_of_example == run.config.data.fold_index
        trained = {example.text for example in run.task.finish_inputs.train}
        assert not trained & set(np.array(texts_of(parts))[inside])
        return train(run, path)

    workdir = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FoldRuns, "save_predictions", noted)
        patch.setattr(OpenedRun, "train", without_the_fold)
        outcomes = predict_folds(parts, workdir)
    return SimpleNamespace(parts=parts, outcomes=outcomes, likely=likely, near=near, workdir=workdir)


@pytest.mark.slow
def test_a_fold_is_predicted_and_compared_by_the_model_that_left_it_out(fitted):
    of_logits = [1 / (1 + np.exp(bad - good)) for bad, good in fitted.outcomes.raw_outputs]
    np.testing.assert_allclose(of_logits, fitted.likely, atol=1e-5)
    np.testing.assert_allclose(fitted.outcomes.similarities, fitted.near, atol=2e-3)
    parts = fitted.parts
    for fold in range(3):
        shift = parts.prior_shift(parts.fold_of_window != fold)
        assert np.ptp(shift) > 0.01
        saved, seconds = read_predictions(fitted.workdir / f"folds/finetune/{fold}/logits.npz")
        assert seconds > 0
        inside = np.flatnonzero(parts.fold_of_example == fold)
        np.testing.assert_allclose(np.array(fitted.outcomes.raw_outputs)[inside], saved + shift, rtol=1e-6)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_predictions(fitted, opened, tmp_path, monkeypatch):
    parts, begun, train = fitted.parts, [], OpenedRun.train

    def until_the_second(run, path):
        begun.append(path.name)
        if len(begun) == 2:
            raise RunStopped(signal.SIGTERM)
        train(run, path)

    monkeypatch.setattr(OpenedRun, "train", until_the_second)
    # The first fold's run has ended before.
    shutil.copytree(fitted.workdir / "folds/finetune/0", tmp_path / "folds/finetune/0")
    with pytest.raises(RunStopped):
        predict_folds(parts, tmp_path)
    again = predict_folds(parts, tmp_path)
    assert begun == ["1", "2", "2"], "what was predicted is not trained again"
    assert all(
        np.array_equal(a, b) for a, b in zip(fitted.outcomes.raw_outputs, again.raw_outputs, strict=True)
    )
    for workdir in (fitted.workdir, tmp_path):
        assert not list(workdir.glob("folds/*/*/model")), "what is not needed any more is removed"
    other = opened.reopen(
        replace(opened.given, optimizer=replace(opened.given.optimizer, learning_rate=1e-4))
    )
    with pytest.raises(BertJaxError, match="started with other settings: optimizer.learning_rate"):
        predict_folds(Folds(other), tmp_path)


@pytest.mark.slow
def test_folds_of_fewer_steps_are_trained_anew(fitted, opened, tmp_path, monkeypatch):
    def stopped(run, path):
        assert run.config.steps == 8 and not path.exists()
        raise RunStopped(signal.SIGTERM)

    shutil.copytree(fitted.workdir / "folds", tmp_path / "folds")
    monkeypatch.setattr(OpenedRun, "train", stopped)
    with pytest.raises(RunStopped):
        predict_folds(Folds(opened.reopen(replace(opened.given, steps=8))), tmp_path)
    assert (tmp_path / "folds/finetune/1").is_dir(), "until its turn"


@pytest.mark.slow
def test_some_folds_give_outcomes_of_their_examples(fitted):
    some, whole = predict_folds(fitted.parts, fitted.workdir, count=2), fitted.outcomes
    inside = fitted.parts.fold_of_example < 2
    np.testing.assert_array_equal(some.raw_outputs, np.array(whole.raw_outputs)[inside])
    np.testing.assert_array_equal(some.similarities, whole.similarities[inside])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logits.npz", SIMILARITIES])
def test_what_a_run_without_a_fold_left_is_checked(fitted, tmp_path, name):
    shutil.copytree(fitted.workdir / "folds", tmp_path / "folds")
    saved = tmp_path / "folds/finetune/1" / name
    whole = saved.read_bytes()
    other = io.BytesIO()
    np.save(other, np.zeros(3, np.float32))
    for damaged in (whole[:-10], other.getvalue()):
        saved.write_bytes(damaged)
        with pytest.raises(BertJaxError, match=f"{name} is damaged; delete .*folds/finetune/1, and run"):
            predict_folds(fitted.parts, tmp_path)


@pytest.mark.slow
def test_a_run_learns_from_everything_and_is_calibrated_on_everything(encoder_path, tmp_path, capsys):
    path = write_csv(tmp_path / "train.csv", marked_texts(60, 0))
    (tmp_path / "out_of_scope.txt").write_text("the the the\n")
    overrides = [f"init={encoder_path}", f"data.train={path}", "steps=6", "data.folds=3", *SHORT]
    overrides += [f"data.out_of_scope={tmp_path / 'out_of_scope.txt'}"]
    given = "configs/classify.py", overrides, str(tmp_path / "run")
    run.start_training(*given)
    lines = capsys.readouterr().err
    assert lines.count("the model is in ") == 1, "those of folds are removed"
    scope = load(tmp_path / "run/model").scope
    assert len(scope.vectors) == len(scope.known) == 60
    assert "60 of 60 examples out of fold, a linear probe on the frozen encoder: accuracy" in lines
    assert re.search(r"training up to 3 fold models with contrastive .* each in about \d+ s", lines)
    assert "a model with the probe is in" in lines
    assert json.loads((tmp_path / "run/model/calibration.json").read_text())["examples"] == 60
    page = (tmp_path / "run/report/report.md").read_text()
    assert "on the training set, each example predicted by a model that was not trained on it" in page
    assert "examples of the training set" not in page and "60 examples" in page
    assert "A probe of the frozen encoder: " in page and "(learning_curve.png)" in page
    assert "Out-of-scope texts: 1. In-distribution texts: 60, those that are scored above." in page
    run.start_training(*given)
    assert "step 6 train" not in capsys.readouterr().err
    with pytest.raises(BertJaxError, match="method.*finetune"):
        run.start_training(given[0], [*given[1], "method=finetune"], given[2])
    assert "without one fold" not in capsys.readouterr().err, "it is refused before its folds"
    run.start_training(given[0], [*given[1], "steps=7"], given[2])
    lines = capsys.readouterr().err
    assert "steps raised from 6 to 7" in lines and "step 7 train" in lines
    assert lines.count(" contrastive: trained in ") == 3 and "out of fold, a linear probe" not in lines


@pytest.fixture
def played(opened, monkeypatch):
    """Let `choose_method` choose by what is written here of each method: how many of 40 examples it has wrong, and the
    seconds of a fold."""

    def choose(wrong: dict[str, int], seconds: dict[str, float], minutes: float, path, folds: int = 3):
        parts = Folds(opened.reopen(replace(opened.given, minutes=minutes)))
        truth = [parts.evaluator.kind.targets.target_value(example) for example in parts.evaluator.examples]
        right, trained = np.eye(2)[truth], []

        def logits(method: str) -> list:
            rows = range(40 - wrong[method], 40) if method != "linear_probe" else range(wrong[method])
            return [row[::-1] if n in rows else row for n, row in enumerate(right)]

        def predict_next(self):
            trained.append(self.method)
            for n in np.flatnonzero(parts.fold_of_window == len(self.seconds)):
                self.logits[n] = logits(self.method)[n]
            self.seconds.append(seconds[self.method])

        monkeypatch.setattr(
            Folds, "predict_with_probes", lambda *_: parts.make_outcomes(logits("linear_probe"))
        )
        monkeypatch.setattr(FoldRuns, "predict_next", predict_next)
        monkeypatch.setattr(FoldRuns, "next_seconds", property(lambda self: seconds[self.method]))
        monkeypatch.setattr(FoldRuns, "outcomes", property(lambda self: parts.make_outcomes(self.logits)))
        return choose_method.choose_method(parts, path), trained

    return choose


QUICK = {"contrastive": 10.0, "finetune": 20.0}


def test_every_method_is_tried_and_the_best_predictions_win(played, tmp_path):
    wrong = {"linear_probe": 12, "contrastive": 10, "finetune": 1}
    (method, predictions), trained = played(wrong, QUICK, 3, tmp_path)
    assert trained == ["contrastive"] * 3 + ["finetune"] * 3, "as it may be better"
    assert method == predictions.method == "finetune"
    assert predictions.outcomes.score_sums.scores["accuracy"] == 1 - 1 / 40
    (method, predictions), _ = played(wrong | {"linear_probe": 0}, QUICK, 3, tmp_path)
    assert method == predictions.method == "linear_probe", "none is better"


def test_a_method_that_cannot_win_any_more_gets_no_further_fold(played, tmp_path):
    wrong = {"linear_probe": 2, "contrastive": 38, "finetune": 0}
    (method, _), trained = played(wrong, QUICK, 3, tmp_path)
    assert method == "finetune" and trained.count("contrastive") < trained.count("finetune") == 3


def test_the_minutes_decide_how_many_folds_are_predicted(played, tmp_path, capsys):
    wrong = {"linear_probe": 12, "contrastive": 10, "finetune": 10}
    (method, predictions), trained = played(wrong, QUICK, 1.2, tmp_path)
    # 10, 10, 10 and 20 seconds, while 20 are kept for the final model.
    assert trained == ["contrastive"] * 3 + ["finetune"] and method == "contrastive"
    printed = capsys.readouterr().err
    assert (
        "fine-tuning predicted 1 of 3 folds: one of its models takes about 20 s, and the run has 72 s"
        in printed
    )
    (method, predictions), trained = played(wrong, QUICK, 0.6, tmp_path)
    assert trained == ["contrastive"] * 2 and len(predictions.outcomes.examples) == 27
    (method, predictions), trained = played(wrong, dict.fromkeys(QUICK, np.inf), 3, tmp_path)
    assert method == predictions.method == "linear_probe" and not trained
    assert "fine-tuning is not tried: one of its models would take long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "count"),
    [((), 5), (("data.max_examples=6",), 5), (("data.folds=0",), 0), (("data.folds=3",), 3),
     (("data.calibration_ratio=0.5",), 0), (("patience=2", "checkpoints.best_metric=accuracy"), 0)],
)  # fmt: skip
def test_a_part_is_held_out_where_that_is_asked_for(opened, changes, count):
    given = opened.given
    overrides = [f"init={given.init}", f"data.train={given.data.train}", *SHORT, *changes]
    module, config = load_config("configs/classify.py", overrides)
    assert module.open(config, ModelDirectories())[2].data.folds == count


def rows_of(kind: str) -> list[dict]:
    """Texts whose words w2 and w3 say all."""
    rows = []
    for n, text in enumerate(random_texts(120, (1, 3))):
        has = [name for name, there in (("w2", n % 2), ("w3", n % 3 == 0)) if there]
        words = [*has, *text.split()]
        if kind == "tags":
            rows.append({"tokens": words, "tags": ["B-X"] * len(has) + ["O"] * len(text.split())})
        else:
            rows.append({"text": " ".join(words), "label": has if kind == "labels" else 1e3 * len(has)})
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "metric", "most"),
    [("labels", "f1_micro", 0.8), ("number", "spearman", 0.7), ("tags", "f1", 0.8)],
)
def test_a_probe_learns_every_kind_and_leaves_the_encoder_as_it_is(
    tmp_path, encoder_path, kind, metric, most
):
    path = write_jsonl(tmp_path / "train.jsonl", rows_of(kind))
    given = {"data.train": path, "data.validation": path, "data.overlap": 8}
    given |= {"method": "linear_probe", "head_init": "linear_probe"}
    if kind != "tags":
        given["problem_type"] = {"labels": "multi_label", "number": "regression"}[kind]
    task = "tag" if kind == "tags" else "classify"
    (measured,) = finetune(task, encoder_path, tmp_path / "run", **given)
    assert measured[metric] > most
    before, after = load(encoder_path).params["encoder"], load(tmp_path / "run/model").params["encoder"]
    assert jax.tree.all(jax.tree.map(np.array_equal, before, after))


@pytest.mark.slow
def test_a_model_that_knows_no_more_than_shares_gives_those_of_all_examples(opened):
    """A fold that has more of a class leaves less of it to learn from, and would be called the other class."""
    parts = Folds(opened)
    shares = log_class_shares(parts.class_of_window, 2)

    def probe(_link, _weights, kept: list[int], _strongest):
        known = log_class_shares(parts.class_of_window[kept], 2)
        assert np.abs(known - shares).max() > 0.01
        fitted = Mock(return_value=known)
        fitted.penalties = 1
        return fitted

    features = SimpleNamespace(states=range(40), fit_probe=probe)
    outcomes, _ = parts.predict_with_probe(features, "softmax", np.ones(40, bool))
    np.testing.assert_allclose(outcomes.raw_outputs, np.tile(shares, (40, 1)), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [pytest.param(0, marks=pytest.mark.long), 2])
def test_a_run_without_time_has_scores_of_one_fold(encoder_path, tmp_path, capsys, steps):
    path = write_csv(tmp_path / "train.csv", marked_texts(150, 0))
    given = ["method=finetune", "minutes=1e-6", f"steps={steps}", *SHORT]
    overrides = [f"init={encoder_path}", f"data.train={path}", *given]
    run.start_training("configs/classify.py", overrides, str(tmp_path / "run"))
    printed = capsys.readouterr().err
    assert "fine-tuning predicted 1 of 5 folds: one of its models takes about" in printed
    assert "out-of-scope detection is calibrated on 30 validation texts" in printed
    assert "on 30 of 150 examples of the training set" in (tmp_path / "run/report/report.md").read_text()
