"""A task that learns from labels and is no part of the package: one file, and every verb takes it."""

import json

import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.predictions.kind import KINDS
from tests.support.tables import write_csv
from tests.support.texts import marked_texts

SHORT = ("steps=8", "optimizer.learning_rate=3e-3", "data.max_length=32", "data.batch_size=16", "log.every=2")


@pytest.fixture(scope="module")
def run(encoder_path, tmp_path_factory):
    """verb -> what `bert-jax` printed for the task, its data and a directory."""
    folder = tmp_path_factory.mktemp("focal")
    train = write_csv(folder / "train.csv", marked_texts(60, 0))
    test = write_csv(folder / "test.csv", marked_texts(40, 1))
    settings = ("task=tests.examples.tasks.focal", f"init={encoder_path}", f"data.train={train}", *SHORT)

    def start(capsys, workdir: str, *changes: str, flags=()):
        keys = [f"--config.{setting}" for setting in (*settings, *changes)]
        workdir = folder / workdir
        assert main(["train", "--config", "classify", f"--workdir={workdir}", *flags, *keys]) == 0
        return workdir, capsys.readouterr()

    start.test = test
    yield start
    KINDS.pop("focal", None)  # which its file registers


@pytest.mark.ci
def test_folds_and_the_verbs_that_use_its_model(run, capsys):
    changes = ("data.folds=2", "method=finetune", "gamma=1.5")
    workdir, planned = run(capsys, "folds", *changes, flags=["--dry-run"])
    assert "gamma       1.5\n" in planned.out and "folds       2, predicted by fine-tuning\n" in planned.out
    assert not workdir.exists()
    _, printed = run(capsys, "folds", *changes)
    assert "fold 2 of 2, fine-tuning: trained" in printed.err and "calibrated on 60 examples" in printed.err
    assert all(
        "focal_loss" in json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()
    )
    assert "60 examples" in (workdir / "report/report.md").read_text()
    saved = json.loads((workdir / "model/calibration.json").read_text())
    assert saved["kind"] == "focal" and len(saved["temperatures"]) == 1
    opened = bert_jax.load(workdir / "model")
    assert opened.kind.name == "focal" and opened.layout.heads == ("classify_mean",)
    model = f"--model={workdir / 'model'}"
    assert main(["evaluate", model, f"--data={run.test}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"].keys() == {"accuracy", "f1", "f1_macro", "matthews"}
    assert main(["predict", model, f"--input={run.test}"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 40


@pytest.mark.long
def test_a_sweep_of_a_key_of_its_own(run, capsys):
    workdir, printed = run(capsys, "sweep", "method=finetune", "sweep=gamma=[0.5,2.0]")
    assert "run 2 of 2, gamma=2.0, seed 0: accuracy" in printed.err
    assert "| gamma=0.5 |" in (workdir / "sweep.md").read_text() and (workdir / "report/report.md").exists()
