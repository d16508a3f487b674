"""Several seeds and settings: what they share, what is pointed out, and that each is the run it would be alone."""

import os
import signal

import pytest

from bert_jax import tasks
from bert_jax.command import train as run
from bert_jax.core.config_files import run_config_file
from bert_jax.core.errors import BertJaxError
from bert_jax.runs import sweep
from bert_jax.runs.sweep import SweepRun
from bert_jax.training import loop
from bert_jax.training.step import StepCache
from bert_jax.training.stop_signal import RunStopped
from tests.support.tables import write_csv
from tests.support.texts import marked_texts


@pytest.fixture(scope="module")
def begun(encoder_path, tmp_path_factory):
    """(a tiny model directory, a file of 120 texts, one of 40)"""
    root = tmp_path_factory.mktemp("begun")
    files = ("t.csv", 120), ("d.csv", 40)
    return encoder_path, *(write_csv(root / name, marked_texts(n, n)) for name, n in files)


def overrides(begun, **changes) -> list[str]:
    model, train, validation = begun
    values = {
        "init": model, "data.train": train, "data.validation": validation, "epochs": 4, "data.max_length": 32,
        "data.batch_size": 8, "data.batching": "padded", "data.calibration_ratio": 0, "log.every": 100,
        "log.evaluate_every": 30, "checkpoints.every": 30,
    } | changes  # fmt: skip
    return [f"{key}={value}" for key, value in values.items()]


@pytest.mark.ci
def test_a_sweep_compiles_once_points_out_what_failed_and_keeps_the_best(begun, tmp_path, monkeypatch):
    shared = []
    monkeypatch.setattr("bert_jax.runs.sweep.StepCache", lambda: shared.append(StepCache()) or shared[0])
    asked = overrides(begun, num_seeds=2, sweep="lr=[5e-3,3.0]")
    run.start_training("configs/classify.py", asked, str(tmp_path / "all"))
    ((_, step, _),) = shared[0].kept
    assert step._cache_size() == 1, "four runs, one shape, one program"
    output = (tmp_path / "all" / "sweep.md").read_text()
    assert "| lr=0.005 | " in output and " | 2 | 0 |" in output
    assert "degenerate: lr=3.0 seed 0: " in output and "degenerate: lr=3.0 seed 1: " in output
    assert (tmp_path / "all" / "sweep.png").exists()
    chosen = output.split("best run: lr=0.005, seed ")[1][0]
    best = tmp_path / "all" / "lr=0.005" / f"seed={chosen}" / "model"
    assert (tmp_path / "all/model/model.safetensors").read_bytes() == (
        best / "model.safetensors"
    ).read_bytes()
    assert (tmp_path / "all" / "report" / "report.md").exists()
    # The same seed alone is the same run.
    alone = overrides(begun, seed=1, report=False, **{"optimizer.learning_rate": 5e-3})
    run.start_training("configs/classify.py", alone, str(tmp_path / "alone"))
    weights = [tmp_path / name / "model/model.safetensors" for name in ("alone", "all/lr=0.005/seed=1")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_a_signal_after_the_last_step_of_a_run_stops_the_runs_after_it(begun, tmp_path, monkeypatch, capsys):
    run_steps = loop.TrainingLoop.run_steps

    def signalled(run, stop):
        finished = run_steps(run, stop)
        os.kill(os.getpid(), signal.SIGTERM)
        return finished

    monkeypatch.setattr(loop.TrainingLoop, "run_steps", signalled)
    changes = {"epochs": 0, "steps": 1, "num_seeds": 2}
    with pytest.raises(RunStopped) as stopped:
        run.start_training("configs/classify.py", overrides(begun, **changes), str(tmp_path))
    assert stopped.value.args == (signal.SIGTERM,)
    output = capsys.readouterr().err
    assert "run 1 of 2" in output and "run 2 of 2" not in output
    first = tmp_path / "as_given/seed=0"
    assert (first / "model").exists(), "the first came to its end"
    finished = (first / "checkpoints").stat().st_mtime_ns
    monkeypatch.undo()
    run.start_training("configs/classify.py", overrides(begun, **changes), str(tmp_path))
    assert "run 2 of 2, as given, seed 1" in capsys.readouterr().err
    assert (first / "checkpoints").stat().st_mtime_ns == finished, "the first was not trained again"


def runs_of(*values, **last) -> list[SweepRun]:
    found = [
        SweepRun("s", n, None, None, None, "accuracy", v, {"accuracy": v, "matthews": 0.7})
        for n, v in enumerate(values)
    ]
    found[0].last |= last
    return found


@pytest.mark.parametrize(
    ("runs", "output"),
    [
        (runs_of(0.9, 0.91, 0.9, 0.905), ""),
        (runs_of(0.53, 0.91, 0.9, 0.905), "far from the others, whose median is 0.9025"),
        (runs_of(0.53, 0.52, 0.9, matthews=0.0), "matthews 0.000: predictions look constant"),
        (runs_of(0.9, 0.91, 0.9, accuracy=0.6), "its last evaluation, 0.6000, is far from its best"),
        (runs_of(0.99, 0.91, 0.9, 0.905), ""),
    ],
)
def test_a_degenerate_run_is_pointed_out(runs, output):
    sweep.mark_degenerate(runs)
    assert runs[0].degenerate_reason.startswith(output) and bool(runs[0].degenerate_reason) == bool(output)
    assert not runs[-1].degenerate_reason


@pytest.mark.parametrize(
    ("swept", "folders"),
    [
        ("init=[run/model,run_model,run model]", ["init=run%2Fmodel", "init=run_model", "init=run%20model"]),
        ("lr=[1e-3,0.001,1e-4]", ["lr=0.001", "lr=0.0001"]),
        ("batch_size=[8,8.0]", ["batch_size=8"]),
    ],
)
def test_each_setting_has_a_folder_of_its_own_and_equal_ones_are_one(swept, folders, tmp_path):
    values = run_config_file("configs/classify.py")
    given = ["init=m", "data.train=t.csv", f"sweep={swept}"]
    _, config = tasks.read_config(values, given)
    runs = sweep.plan_runs(values, given, config, tmp_path)
    assert [str(one.path.relative_to(tmp_path)) for one in runs] == [f"{name}/seed=0" for name in folders]


@pytest.mark.slow
def test_all_settings_are_opened_before_any_trains(begun, tmp_path, capsys):
    asked = overrides(begun, steps=1, epochs=0, sweep=f"init=[{begun[0]},{tmp_path}/gone]")
    with pytest.raises(BertJaxError, match=f"{tmp_path}/gone is not a directory"):
        run.start_training("configs/classify.py", asked, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists() and capsys.readouterr() == ("", "")
