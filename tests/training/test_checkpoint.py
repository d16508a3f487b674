"""Checkpoints: a damaged one is said, and those that are kept are the right ones."""

import resource
import shutil
import time

import jax
import numpy as np
import pytest

from bert_jax.command.export import export_checkpoint
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.load import load
from bert_jax.training.best_evaluation import read_kept_metrics
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.log import read_metrics
from bert_jax.training.loop import TrainingLoop, train
from bert_jax.training.run_config import RunConfig
from bert_jax.training.start_share import SHARES, SHARES_LINE, MeasuredShare
from bert_jax.training.workdir import Workdir
from tests.support.pretraining_runs import checkpoint_arrays
from tests.support.tiny_pretraining import Batches, tiny_pretraining
from tests.support.tiny_runs import assert_same_run, continue_run, flip_bit, largest_file, metric_lines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_steps")]


DAMAGE = {
    "a flipped bit": (lambda step: flip_bit(largest_file(step)), "is damaged: its hash differs"),
    "a truncated file": (lambda step: largest_file(step).write_bytes(b"short"), "has 5 bytes instead of"),
    "no commit marker of orbax": (
        lambda step: (step / "_CHECKPOINT_METADATA").unlink(),
        "it lacks its file _CHECKPOINT_METADATA",
    ),
    "no manifest": (lambda step: (step / "manifest.json").unlink(), "it was never committed"),
    "a flipped bit in the manifest": (
        lambda step: flip_bit(step / "manifest.json"),
        "its manifest.json is damaged",
    ),
}


def save_all(checkpoints, positions: dict) -> None:
    for step, position in positions.items():
        checkpoints.save(step, {"x": np.arange(3000.0)}, position)
    checkpoints.finish()


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_newest_checkpoint_is_said_and_set_aside(kind, tmp_path, capsys):
    damage, printed = DAMAGE[kind]
    checkpoints = Checkpoints(tmp_path, tiny_pretraining()[1].checkpoints)
    save_all(checkpoints, {15: {}, 20: {}})
    damage(tmp_path / "20")
    assert checkpoints.newest_step() == 15
    output = capsys.readouterr().out
    assert "the checkpoint of step 20 cannot be used: " in output and printed in output
    assert (tmp_path / "20.damaged").is_dir(), "nothing is thrown away"


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(finished_run, copied_run, capsys):
    flip_bit(largest_file(copied_run / "checkpoints/20"))
    assert "resuming at step 15\n" in continue_run(copied_run, capsys)
    assert_same_run(finished_run, copied_run)


def test_a_finished_run_started_again_changes_nothing(finished_run, copied_run, capsys):
    printed = continue_run(copied_run, capsys)
    assert "already finished, at step 20" in printed and "resuming" not in printed
    assert metric_lines(copied_run) == metric_lines(finished_run)
    assert [line["step"] for line in metric_lines(copied_run) if line["kind"] == "validation"] == [10, 20]


def test_checkpoints_kept_are_the_newest_the_best_and_those_for_good(tmp_path):
    kept = {"checkpoint_keep": 2, "checkpoint_keep_every": 20, "checkpoint_best_metric": "mlm_loss"}
    checkpoints = Checkpoints(tmp_path, tiny_pretraining(**kept)[1].checkpoints)
    losses = dict(zip(range(5, 55, 5), (9, 3, 8, 7, 6, 5, 4, 5, 6, 7), strict=True))
    save_all(checkpoints, {step: {"validation": {"mlm_loss": loss}} for step, loss in losses.items()})
    assert checkpoints.folder.steps() == [10, 20, 40, 45, 50]
    assert checkpoints.folder.best_step("mlm_loss") == 10


def test_of_equal_scores_the_lower_loss_is_the_best_and_of_equal_losses_the_later_step(tmp_path):
    task, config = tiny_pretraining(checkpoint_keep=9, checkpoint_best_metric="accuracy")
    checkpoints = Checkpoints(tmp_path / "checkpoints", config.checkpoints)
    run = TrainingLoop(task, Batches(), config, Workdir(tmp_path), None)
    for step, (accuracy, loss) in enumerate([(0.9, 0.3), (0.9, 0.2), (0.8, 0.1), (0.9, 0.2), (0.9, 0.5)], 1):
        metrics = {"accuracy": accuracy, "classify_loss": loss}
        run.history.record(step, metrics)
        checkpoints.save(step, {"x": np.zeros(3)}, {"validation": metrics})
    checkpoints.finish()
    assert checkpoints.folder.best_step("accuracy") == run.history.best_step() == 4


def test_where_the_best_checkpoint_is_lost_the_next_best_is_kept(tmp_path, monkeypatch, capsys):
    accuracies = {5: 0.7, 10: 0.9, 15: 0.8, 20: 0.6}

    def measure(run):
        if run.step == 20:
            shutil.rmtree(tmp_path / "checkpoints/10")
        return MeasuredShare({"accuracy": accuracies.get(run.step, 0.0)})

    monkeypatch.setattr(TrainingLoop, "compute_metrics", measure)
    task, config = tiny_pretraining(
        log_evaluate_every=5, checkpoint_keep=9, checkpoint_best_metric="accuracy"
    )
    train(task, Batches(), config, tmp_path)
    printed = "".join(capsys.readouterr())
    assert "step 10 is the best by accuracy, but" in printed and (
        "accuracy 0 before training, 0.8 at step 15, 0.6 at step 20; kept: the model of step 15\n" in printed
    )
    assert read_kept_metrics(tmp_path / "metrics.jsonl", "accuracy")["step"] == 15
    assert (tmp_path / "model/model.safetensors").is_file()


def test_a_run_that_makes_the_metric_worse_keeps_the_model_before_training(tmp_path, monkeypatch, capsys):
    accuracies = {0: 0.9, 10: 0.8, 20: 0.7}
    monkeypatch.setattr(
        TrainingLoop, "compute_metrics", lambda run: MeasuredShare({"accuracy": accuracies[run.step]})
    )
    task, config = tiny_pretraining(checkpoint_best_metric="accuracy")
    start = jax.device_get(jax.jit(task.init)(jax.random.key(7)))
    train(task, Batches(), config, tmp_path, lambda: start)
    printed = capsys.readouterr().err
    assert "accuracy 0.9 before training, 0.7 at step 20; kept: the model before training\n" in printed
    kept = load(tmp_path / "model").params
    jax.tree.map(np.testing.assert_array_equal, kept["encoder"], start["encoder"])
    task, config = tiny_pretraining(steps=0, checkpoint_best_metric="accuracy")
    train(task, Batches(), config, tmp_path / "probe", lambda: start)
    assert "kept" not in capsys.readouterr().err, "without a step no model is chosen"


def test_a_model_of_any_checkpoint_is_exported(finished_run, tmp_path):
    assert export_checkpoint(finished_run, tmp_path / "newest") == 20
    assert export_checkpoint(finished_run, tmp_path / "older", 10) == 10
    newest, older, result = (
        load(path).params for path in (tmp_path / "newest", tmp_path / "older", finished_run / "model")
    )
    for name, value in checkpoint_arrays(finished_run / "checkpoints/10").items():
        if "words" in name and "params" in name:
            np.testing.assert_array_equal(older["encoder"]["embeddings"]["words"], value)
    jax.tree.map(np.testing.assert_array_equal, newest, result)
    with pytest.raises(BertJaxError, match="has no checkpoint of step 11; other checkpoints: 5, 10, 15, 20"):
        export_checkpoint(finished_run, tmp_path / "none", 11)


def test_a_full_disk_costs_no_more_than_the_checkpoint_that_did_not_fit(finished_run, tmp_path, capsys):
    """A limit on the size of files stands in for the disk's end."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def plant(step, batch):
        if step == 12:
            while not (tmp_path / "checkpoints/10/manifest.json").exists():
                time.sleep(0.01)
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
        return batch

    task, config = tiny_pretraining(checkpoint_keep=9)
    try:
        with pytest.raises(
            BertJaxError, match="the last checkpoint could not be written .* make room there and start"
        ):
            train(task, Batches(plant=plant), config, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    printed = capsys.readouterr().err
    assert "the checkpoint of step 15 could not be written" in printed
    assert "the run goes on and tries again in 5 steps, older checkpoints stay" in printed
    assert "resuming at step 10\n" in continue_run(tmp_path, capsys)
    assert_same_run(finished_run, tmp_path)


@pytest.mark.parametrize(
    ("given", "at_10", "at_shares", "averaged", "share"),
    [
        pytest.param(0.25, 0.9, (0.85, 0.8), 10, 0.25, marks=pytest.mark.long),
        (0.25, 0.7, (0.75, 0.8), 20, 1.0),
        (-1, 0.9, (0.9, 0.92, 0.88, 0.85, 0.8), 10, 0.25),
    ],
)
def test_a_model_that_went_on_is_averaged_with_its_start(
    tmp_path, monkeypatch, capsys, given, at_10, at_shares, averaged, share
):
    """The best step is averaged, or the last where none is better than the start, unless the start is better still."""
    values = iter((0.8, at_10, 0.6, *at_shares))
    monkeypatch.setattr(
        TrainingLoop, "compute_metrics", lambda run: MeasuredShare({"accuracy": next(values)})
    )
    monkeypatch.setattr(RunConfig, "init_share", given)
    task, config = tiny_pretraining(checkpoint_best_metric="accuracy", checkpoint_keep=9)
    start = jax.device_get(jax.jit(task.init)(jax.random.key(7)))
    train(task, Batches(), config, tmp_path, lambda: start)
    best = "0.9 at step 10, 0.6 at step 20; best: the model of step 10"
    worst = "0.6 at step 20; best: the model before training"
    printed = capsys.readouterr().err
    assert f"accuracy 0.8 before training, {best if averaged == 10 else worst}\n" in printed
    assert f"averaged with the model before training (init_share={share:g})" in printed
    export_checkpoint(tmp_path, tmp_path / "trained", averaged)
    trained, found = (load(tmp_path / name).params["encoder"] for name in ("trained", "model"))
    mean = jax.tree.map(lambda a, b: share * a + (1 - share) * b, start["encoder"], trained)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, mean)
    line = read_kept_metrics(tmp_path / "metrics.jsonl", "accuracy")
    assert (line["step"], line["accuracy"]) == (averaged if share < 1 else 0, max(at_shares))
    (tried,) = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["kind"] == SHARES_LINE]
    shares = SHARES if given < 0 else (given, 1.0)
    assert [tried[f"accuracy_at_{share:g}"] for share in shares] == list(at_shares)
