"""Which method trains a run of more examples than are cross-validated: one fold chooses it."""

import json
from types import SimpleNamespace

import jax
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.finetuning import choose_method, example_splits, finetune_task
from bert_jax.finetuning.choose_method import Gain
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.inference.text_outcomes import predict_outcomes
from bert_jax.metrics.intervals import Interval
from bert_jax.runs.run import FinishedRun, run_from_config
from bert_jax.tasks import load_config
from tests.support.tables import write_csv
from tests.support.texts import marked_texts

SHORT = (
    "steps=6",
    "optimizer.learning_rate=3e-3",
    "data.max_length=32",
    "data.batch_size=16",
    "data.calibration_ratio=0",
    "data.batching=padded",
)


def run_of(examples: int, *changes: str, text="a text", contrastive: bool = True, spec="configs/classify.py"):
    """A run on examples of three classes."""
    given = load_config(spec, ["data.train=train.csv", *(changes or ["init=model"])])[1]
    kind = SimpleNamespace(supports_contrastive=contrastive, labels=range(3))
    task = SimpleNamespace(kind=kind, train_examples=[SimpleNamespace(text=text)] * examples)
    return SimpleNamespace(task=task, given=given)


def needs_one_fold(run) -> bool:
    return FinetuneTask.needs_one_fold(run.task, run)


def test_it_is_for_texts_that_contrast_may_teach_more(monkeypatch):
    assert needs_one_fold(run_of(2_999))
    assert not needs_one_fold(run_of(3_000)), "1,000 of each class"
    assert not needs_one_fold(run_of(999))
    assert not needs_one_fold(run_of(1_500, text=("a", "pair")))
    for change in ("method=contrastive", "head_init=pretrained", "data.folds=0", "patience=2"):
        assert not needs_one_fold(run_of(1_500, "init=model", change)), change
    taught = run_of(1_500, "teacher=model", spec="configs/distil.py:classifier")
    assert not needs_one_fold(taught), "a distillation is one run"
    assert not needs_one_fold(run_of(1_500, contrastive=False)), "of several labels, say"
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert not needs_one_fold(run_of(1_500))


class PredictedFolds:
    """Folds that a method predicts at once."""

    next_seconds = spent_seconds = 1.0

    def __init__(self, parts, method: str, workdir):
        self.method, self.seconds, self.outcomes = method, list[float](), method

    def predict_next(self) -> None:
        self.seconds.append(1.0)


@pytest.mark.parametrize(
    ("expected", "measured", "method", "reason"),
    [
        (
            0.02,
            -0.04,
            "contrastive",
            ": a difference of -0.040 on so few examples may be chance, and it usually gains",
        ),
        (
            0.02,
            0.0,
            "contrastive",
            ": a difference of +0.000 on so few examples may be chance, and it usually gains",
        ),
        (0.02, 0.03, "contrastive", ""),
        (-0.02, -0.04, "linear_probe", ""),
    ],
)
def test_a_choice_that_the_folds_speak_against_has_its_reason(
    expected, measured, method, reason, monkeypatch, tmp_path, capsys
):
    gains = {
        "contrastive": Gain(expected, 0.03, Interval(measured, measured - 0.08, measured + 0.08)),
        "finetune": Gain(-0.1, 0.01, Interval(-0.1, -0.12, -0.08)),
    }
    monkeypatch.setattr(choose_method, "FoldRuns", PredictedFolds)
    monkeypatch.setattr(choose_method, "print_method_scores", lambda *_: None)
    monkeypatch.setattr(choose_method, "usual_gain", lambda *_: Gain(0.05, 0.05))
    monkeypatch.setattr(
        choose_method, "gain_after_folds", lambda usual, probe, trained, learnt: gains[trained]
    )
    config = SimpleNamespace(
        method="auto",
        head_init="linear_probe",
        data=SimpleNamespace(folds=5),
        budget_seconds=lambda *_: 100.0,
    )
    kind = SimpleNamespace(link="softmax", supports_contrastive=True)
    task = SimpleNamespace(kind=kind, head="classify", layout=SimpleNamespace(config=None))
    parts = SimpleNamespace(
        config=config, task=task, evaluator=SimpleNamespace(examples=range(20)), predicted=range(5), curve=None,
        covers_all=True, predict_with_probes=lambda workdir: "linear_probe",
    )  # fmt: skip
    assert choose_method.choose_method(parts, tmp_path)[0] == method
    name = choose_method.METHOD_NAMES[method]
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"the final model is trained on all examples by {name}{reason}"
    )


@pytest.fixture
def many(monkeypatch):
    """40 examples are many."""
    monkeypatch.setattr(example_splits, "FOLDS_BELOW", 30)
    monkeypatch.setattr(finetune_task, "ONE_FOLD_FROM", 30)


@pytest.mark.long
def test_one_fold_is_predicted_and_the_run_is_that_of_the_better_method(
    encoder_path, tmp_path, many, monkeypatch, capsys
):  # fmt: skip
    seen, judged = {}, []

    def best_of(given):
        seen.update(given)
        return "contrastive"

    class Finished(FinishedRun):
        def __init__(self, *given):
            super().__init__(*given)
            judged.append(self)

    monkeypatch.setattr(choose_method, "pick_best", best_of)
    monkeypatch.setattr("bert_jax.runs.run.FinishedRun", Finished)
    train = write_csv(tmp_path / "train.csv", marked_texts(40, 0))
    overrides = [f"init={encoder_path}", f"data.train={train}", *SHORT]
    given = {"task": "classify"}, overrides, str(tmp_path / "run"), ""
    planned = ["train", "--config", "classify", "--dry-run", f"--workdir={given[2]}"]
    planned += [f"--config.{override}" for override in overrides]
    assert main(planned) == 0 and "1, predicted by a linear probe" in capsys.readouterr().out
    scores = run_from_config(*given)
    printed = capsys.readouterr().err
    assert printed.count("training the model of one of 5 folds with ") == 2
    assert "8 of 40 examples out of fold, fine-tuning: accuracy" in printed
    assert sorted(seen) == ["contrastive", "finetune"] and seen["contrastive"].mean
    assert not list((tmp_path / "run").glob("folds/*/*/similarities.npy")), "which only reports use"
    begun_folds = {f"{path.parent.name}/{path.name}" for path in (tmp_path / "run").glob("folds/*/*")}
    assert begun_folds == {"contrastive/0", "finetune/0"}
    # The run itself holds out a share, and its scores are those of its model there.
    begun = json.loads((tmp_path / "run/run.json").read_text())["config"]
    assert (begun["method"], begun["data.folds"]) == ("contrastive", 0)
    results = judged[-1].results
    assert len(results.validation) == 4 and judged[-1].out_of_fold is None
    own = predict_outcomes(bert_jax.load(tmp_path / "run/model"), results.validation).score_sums.scores
    assert {name: scores[name] for name in own} == pytest.approx(own)
    # It is found again, without its folds.
    monkeypatch.setattr(choose_method, "pick_best", None)
    assert run_from_config(*given) == scores
    assert "one of 5 folds" not in capsys.readouterr().err
    assert main(planned) == 0
    again = capsys.readouterr().out
    assert "predicted by" not in again and "a run that has finished" in again
