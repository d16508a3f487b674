"""The loop, in this process and on made-up rows: what goes wrong is said, and nothing is lost."""

import errno
import io
import json
import sys
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError, NonFiniteError
from bert_jax.core.hashes import is_whole, read_hashes
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.training import checkpoint, loop
from bert_jax.training.checkpoint import CheckpointFolder
from bert_jax.training.log import MetricsLog, read_metrics
from bert_jax.training.loop import train
from bert_jax.training.step_timer import StepTimer
from bert_jax.training.workdir import Workdir
from tests.support.pretraining_runs import checkpoint_arrays
from tests.support.tiny_pretraining import VALIDATION, Batches, tiny_pretraining
from tests.support.tiny_runs import continue_run, metric_lines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_steps")]


def test_an_update_that_is_not_finite_is_discarded_and_its_step_said(tmp_path, capsys):
    def plant(step, batch):
        if step == 7:
            batch["target_weights"][3, 0] = np.nan
        return batch

    task, config = tiny_pretraining()
    train(task, Batches(plant=plant), config, tmp_path)
    found = metric_lines(tmp_path)
    assert [line for line in found if line["kind"] == "discarded"] == [
        {"step": 8, "kind": "discarded", "batch": 7, "in_a_row": 1}
    ]
    assert (
        "the update of step 7 is not finite and was discarded; `bert-jax inspect --step 7`"
        in capsys.readouterr().err
    )
    assert found[-2]["discarded"] == 1
    assert np.isfinite([line["loss"] for line in found if line["kind"] == "train"]).all()
    assert all(np.isfinite(value).all() for value in checkpoint_arrays(tmp_path / "checkpoints/20").values())


def test_updates_that_stay_bad_stop_the_run_with_the_last_good_state_kept(tmp_path, finished_run):
    def plant(step, batch):
        if 10 <= step < VALIDATION:
            batch["label_weights"][:] = np.inf
        return batch

    task, config = tiny_pretraining(max_nonfinite_steps=3)
    with pytest.raises(
        NonFiniteError, match="3 updates in a row are not finite, the last at step 12; .* checkpoint 14"
    ):
        train(task, Batches(plant=plant), config, tmp_path)
    kept = checkpoint_arrays(tmp_path / "checkpoints/14")
    good = checkpoint_arrays(finished_run / "checkpoints/10")
    for name, value in good.items():
        if "params" in name or "optimizer" in name:
            np.testing.assert_array_equal(kept[name], value, err_msg=name)


def test_a_held_out_measure_that_is_not_finite_stops_the_run_and_names_its_batch(tmp_path):
    def plant(step, batch):
        if step == VALIDATION + 2:
            batch["target_weights"][3, 0] = np.nan
        return batch

    task, config = tiny_pretraining(checkpoint_best_metric="mlm_loss")
    with pytest.raises(NonFiniteError) as error:
        train(task, Batches(plant=plant), config, tmp_path)
    assert str(error.value) == (
        "validation batch 1 (counted from 0): mlm_loss is nan at step 0; look at its examples; if they are good, "
        "start again with a lower --config.optimizer.learning_rate"
    )
    assert not [line for line in metric_lines(tmp_path) if line["kind"] == "validation"], (
        "nothing is chosen by it"
    )


@pytest.mark.parametrize(("number", "ends"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_a_run_outlives_its_terminal_until_it_is_told(tmp_path, monkeypatch, number, ends):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(number, "gone")

    log = MetricsLog(tmp_path, tmp_path / "metrics.jsonl", 0, 9, False)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Gone())
        with pytest.raises(OSError, match="gone") if ends else nullcontext():
            log.write_line("validation", 1, {"loss": 2.0})
    log.close()
    assert [line["loss"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [2.0]


def test_a_run_does_not_go_on_with_other_settings(copied_run, capsys):
    with pytest.raises(BertJaxError) as error:
        continue_run(copied_run, capsys, learning_rate=5e-3, warmup_steps=6)
    assert (
        "was started with other settings: optimizer.learning_rate was 0.003 and is 0.005; "
        "optimizer.warmup_steps was 5 and is 6" in str(error.value)
    )
    assert "finished, at step 20" in continue_run(
        copied_run, capsys, log_every=7, gradient_accumulation_steps=2
    ), "these may change"


def test_steps_may_be_raised_and_the_schedule_is_the_new_one(copied_run, capsys):
    Workdir(copied_run).finished.touch()
    output = continue_run(copied_run, capsys, steps=24)
    assert "steps raised from 20 to 24; from here on the schedule is that of 24\n" in output
    assert "resuming at step 20" in output
    rates = {
        line["step"]: line["learning_rate"] for line in metric_lines(copied_run) if line["kind"] == "train"
    }
    assert rates[22] == pytest.approx(3e-3 * 3 / 19) and max(rates) == 24, (
        "after 5 steps of warm-up, 19 to the end"
    )
    assert Workdir(copied_run).read_run()["config"]["steps"] == 24
    assert not Workdir(copied_run).finished.exists(), "a program that follows the run waits for its new end"
    with pytest.raises(BertJaxError, match="steps was 24 and is 20"):
        continue_run(copied_run, capsys)


def test_a_run_of_another_version_is_refused_with_the_way_out(copied_run, capsys):
    path = copied_run / "run.json"
    content = json.loads(path.read_text())
    del content["version"]
    path.write_text(json.dumps(content))
    with pytest.raises(BertJaxError, match="run.json"):
        continue_run(copied_run, capsys)


def test_a_run_does_not_go_on_with_other_data(copied_run):
    class Others(Batches):
        def identity(self):
            return {"rows": "others"}

    task, config = tiny_pretraining(checkpoint_keep=9)
    with pytest.raises(BertJaxError, match="was started with other data: rows was made up and is others"):
        train(task, Others(), config, copied_run)


def test_a_workdir_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    task, config = tiny_pretraining()
    with pytest.raises(BertJaxError, match="--workdir"):
        train(task, Batches(), config, tmp_path / "file/run")


def test_a_run_that_fails_ends_after_the_checkpoint_that_is_being_written(tmp_path, monkeypatch):
    write, failed = checkpoint.write_checkpoint_manifest, threading.Event()

    def fail(measures, of, step):
        failed.set()
        raise NonFiniteError("the loss is not finite; begin again")

    def write_late(directory, position):
        failed.wait(60)
        time.sleep(0.2)
        write(directory, position)

    monkeypatch.setattr(loop, "check_finite", fail)
    monkeypatch.setattr(checkpoint, "write_checkpoint_manifest", write_late)
    task, config = tiny_pretraining(checkpoint_every=1, log_evaluate_every=2)
    with pytest.raises(NonFiniteError, match="the loss is not finite"):
        train(task, Batches(), config, tmp_path)
    assert CheckpointFolder(tmp_path / "checkpoints").steps() == [1]


def test_a_profile_on_request_and_events_for_tensorboard(tmp_path):
    task, config = tiny_pretraining(log_profile=17)
    train(task, Batches(), config, tmp_path)
    assert list((tmp_path / "profile").rglob("*.xplane.pb")), "also where the run ends within the profile"
    from bert_jax.text.host_tensorflow import tf

    (events,) = tmp_path.glob("events.*")
    lines = tf.compat.v1.train.summary_iterator(str(events))
    found = {(event.step, value.tag) for event in lines for value in event.summary.value}
    assert {(2, "train/loss"), (20, "validation/mlm_accuracy"), (18, "train/tokens_per_second")} <= found


def test_going_on_from_a_model_directory(finished_run, tmp_path, capsys):
    begun = json.loads((finished_run / "model/config.json").read_text())
    assert begun["architectures"] == ["BertForPreTraining"]
    from bert_jax.training import warm_start

    task, config = tiny_pretraining()
    directories, init = ModelDirectories(), str(finished_run / "model")
    saved = directories[init].layout.config
    warm_start.check_same_tokenizer(directories[init], Batches().tokenizer)
    warm_start.check_sizes(init, saved, task.layout.config)
    params, missing = warm_start.read_initial_params(directories, init, task, seed=0)
    assert not missing
    task, config = tiny_pretraining(steps=12, init=str(finished_run / "model"), first_step=8)
    train(task, Batches(), config, tmp_path / "kept", lambda: params)
    first = metric_lines(tmp_path / "kept")[0]
    assert first["step"] == 9, "the schedule goes on where the run before it stood"
    assert first["mlm_loss"] < metric_lines(finished_run)[2]["mlm_loss"]
    other, _ = tiny_pretraining(layers=2)
    with pytest.raises(BertJaxError, match="--config.model.num_hidden_layers=1"):
        warm_start.check_sizes(init, saved, other.layout.config)


def test_a_model_takes_its_place_with_all_its_files_or_not_at_all(tmp_path):
    task, config = tiny_pretraining()

    def complete(model, fails=False):
        assert (model / "model.safetensors").exists() and not (tmp_path / "model").exists()
        (model / "README.md").write_text("a card")
        if fails:
            raise OSError(errno.ENOSPC, "the disk is full")
        return "a result"

    with pytest.raises((OSError, BertJaxError)):
        train(task, Batches(), config, tmp_path, complete=lambda model: complete(model, fails=True))
    assert not (tmp_path / "model").exists()
    assert train(task, Batches(), config, tmp_path, complete=complete) == "a result"
    assert is_whole(tmp_path / "model") and "README.md" in read_hashes(tmp_path / "model")


def test_the_speed_of_a_line_is_that_of_its_steps_without_compiling_and_evaluations(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("bert_jax.training.step_timer.time.perf_counter", lambda: clock[0])
    pace = StepTimer()
    for seconds in (30, 2, 2):  # the first compiles
        clock[0] += seconds
        pace.count_step(tokens=100)
    clock[0] += 7
    pace.exclude_pause(7)
    pace.add_input_wait(1.7)
    assert pace.take_timings(left=9) == pytest.approx(
        {
            "seconds": 34,
            "input_wait": 0.05,
            "tokens_per_second": 50,
            "seconds_per_step": 2,
            "hours_left": 9 * (2 + 7 / 3) / 3600,
        }
    )
    clock[0] += 4
    pace.count_step(tokens=100)
    assert pace.take_timings(left=8)["tokens_per_second"] == 25
