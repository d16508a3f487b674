"""A task that learns from labels and is no part of the package: one file, and every verb takes it."""

import json

import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.predictions.kind import KINDS
from tests.support.tables import write_csv
from tests.support.texts import marked_texts


@pytest.mark.ci
def test_folds_and_the_verbs_that_use_its_model(encoder_path, tmp_path, capsys, request):
    request.addfinalizer(lambda: KINDS.pop("focal", None))  # which its file registers
    train = write_csv(tmp_path / "train.csv", marked_texts(60, 0))
    test = write_csv(tmp_path / "test.csv", marked_texts(40, 1))
    settings = (
        "task=tests.examples.tasks.focal", f"init={encoder_path}", f"data.train={train}", "steps=8", "data.folds=2",
        "method=finetune", "gamma=1.5", "optimizer.learning_rate=3e-3", "data.max_length=32", "data.batch_size=16",
        "log.every=2",
    )  # fmt: skip
    workdir = tmp_path / "folds"
    command = [
        "train",
        "--config",
        "classify",
        f"--workdir={workdir}",
        *(f"--config.{key}" for key in settings),
    ]
    assert main([*command, "--dry-run"]) == 0
    planned = capsys.readouterr().out
    assert "gamma       1.5\n" in planned and "folds       2, predicted by fine-tuning\n" in planned
    assert not workdir.exists()
    assert main(command) == 0
    printed = capsys.readouterr().err
    assert "fold 2 of 2, fine-tuning: trained" in printed and "calibrated on 60 examples" in printed
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    assert all("focal_loss" in json.loads(line) for line in lines)
    assert "60 examples" in (workdir / "report/report.md").read_text()
    saved = json.loads((workdir / "model/calibration.json").read_text())
    assert saved["kind"] == "focal" and len(saved["temperatures"]) == 1
    opened = bert_jax.load(workdir / "model")
    assert opened.kind.name == "focal" and opened.layout.heads == ("classify_mean",)
    model = f"--model={workdir / 'model'}"
    assert main(["evaluate", model, f"--data={test}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"].keys() == {"accuracy", "f1", "f1_macro", "matthews"}
    assert main(["predict", model, f"--input={test}"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 40
