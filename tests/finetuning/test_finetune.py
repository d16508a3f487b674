"""What fine-tunings share: settings, the beginning of a head, weights of classes, and what is wrong with a config."""

import dataclasses
import json
import random
import re

import numpy as np
import pytest

from bert_jax.command.inspect import show_examples
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.example import Example
from bert_jax.finetuning.example_splits import MIN_CALIBRATION_EXAMPLES, split_examples
from bert_jax.finetuning.finetune_config import ExamplesConfig
from bert_jax.finetuning.finetune_data import balanced_class_weights
from bert_jax.predictions.kind import KINDS
from bert_jax.tasks import load_config as load_task
from bert_jax.tasks.classify import Config
from bert_jax.text.encoding_options import EncodingOptions
from tests.support.encoded_windows import classify_windows, task_and_windows
from tests.support.finetuning_runs import assert_cut_off_ends_alike, finetune
from tests.support.tables import write_csv
from tests.support.texts import marked_texts, random_texts

# Whole runs


@pytest.mark.parametrize(
    ("documents", "each", "share"),
    [(49, 1, None), (50, 1, 0.5), (98, 1, 0.26), (3, 60, 0.5), (10, 40, 0.15), (2, 90, None)],
)
def test_the_share_that_is_advised_keeps_enough_for_calibration(tmp_path, capsys, documents, each, share):
    rows = [
        (f"{text} {n}", random.Random(n).choice("xy"), f"d{n % documents}")
        for n, text in enumerate(random_texts(documents * each))
    ]
    path = write_csv(tmp_path / "t.csv", rows, ("text", "label", "document"))

    def parts(**changes):
        columns = ExampleColumns(group="document")
        data = ExamplesConfig(str(path), str(path), columns=columns, **changes)
        return split_examples(Config(init="anywhere", data=data))

    assert not parts(calibration_ratio=0.01).calibration
    advised = re.search(r"calibration_ratio=([\d.]+)", capsys.readouterr().err)
    assert (advised and float(advised[1])) == share
    if share:
        calibration = parts(calibration_ratio=share).calibration
        assert (
            len(calibration) >= MIN_CALIBRATION_EXAMPLES
            and len({example.document for example in calibration}) > 1
        )


@pytest.mark.long
def test_a_run_that_lost_patience_stays_ended(tmp_path, encoder_path):
    rows = [(text, random.Random(text).choice(["x", "y"])) for text in random_texts(64)]  # nothing to learn
    given = {
        "data.train": write_csv(tmp_path / "t.csv", rows), "patience": 2, "epochs": 50,
        "optimizer.learning_rate": 1e-12, "log.evaluate_every": 8,
    }  # fmt: skip
    lines = finetune("classify", encoder_path, tmp_path / "run", **given)
    assert [line["step"] for line in lines] == [0, 8, 16], "two after the start, which is as good"
    written = (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns
    (tmp_path / "run/finished.json").unlink()  # else nothing is done at all
    assert finetune("classify", encoder_path, tmp_path / "run", **given) == lines
    assert (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns > written


@pytest.mark.parametrize("given", [(), ("steps=40", "log.evaluate_every=4", "checkpoints.every=4")])
def test_patience_waits_for_the_metric_of_the_task(given):
    _, config = load_task("configs/classify.py", ["init=model", "data.train=t.csv", "patience=3", *given])
    assert config.resolve_defaults(16, "accuracy", 768).checkpoints.best_metric == "accuracy"
    with pytest.raises(BertJaxError, match="patience"):
        config.resolve_defaults(16, "", 768)


@pytest.mark.parametrize(
    ("config", "width", "examples", "rate"),
    [("classify", 768, 1000, 3e-5), ("classify", 384, 1000, 6e-5), ("classify", 32, 1000, 3e-4),
     ("rerank", 768, 1000, 5e-5), ("rerank", 384, 1000, 2e-4), ("tag", 768, 1999, 5e-5), ("tag", 384, 1999, 2e-4),
     ("tag", 384, 2000, 5e-5), ("tag", 128, 8, 3e-4)],
)  # fmt: skip
def test_the_learning_rate_follows_the_width_and_the_examples(config, width, examples, rate):
    _, config = load_task(f"configs/{config}.py", ["init=model", "data.train=t.csv"])
    assert config.resolve_defaults(examples, "", width).optimizer.learning_rate == pytest.approx(rate)


@pytest.mark.ci
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(tmp_path, encoder_path):
    given = {
        "data.train": write_csv(tmp_path / "t.csv", marked_texts(24, 0)), "epochs": 4, "model.hidden_dropout_prob": 0.1,
        "checkpoints.every": 3, "checkpoints.keep": 20,
    }  # fmt: skip
    assert_cut_off_ends_alike("classify", encoder_path, tmp_path, "model.safetensors", **given)


@pytest.mark.slow
def test_class_weights_and_windows_weigh_as_they_should():
    task, encoded_windows = classify_windows("classes")
    examples = [Example("", label, "") for label in "aaab"]
    assert balanced_class_weights(KINDS["classes"](("a", "b")), examples) == pytest.approx((2 / 3, 2))
    weighted = dataclasses.replace(task, class_weights=(1.0, 2.0, 5.0))
    batch = {"labels": np.array([0, 1, 2]), "label_weights": np.array([1.0, 1.0, 0.5])}
    loss = weighted.losses({"classify": np.zeros((3, 3), np.float32)}, batch)["classify_loss"]
    assert float(loss.weight) == 1 + 2 + 2.5
    long = [Example(text, label, "") for text, label in zip(random_texts(3, (20, 60)), "aab", strict=True)]
    _, made = task_and_windows("classes", long, EncodingOptions(16, "windows", 4))
    assert len(made) > 3
    for i in range(3):
        assert sum(
            float(window.targets["label_weights"]) for window in made if window.example == i
        ) == pytest.approx(1)


def test_inspect_shows_what_is_learnt(tmp_path, encoder_path):
    def shown(task, path, step=0):
        values = {
            "init": encoder_path, "data.train": path, "data.validation": path, "data.batch_size": 8, "data.overlap": 8,
            "data.max_length": 48, "epochs": 3,
        }  # fmt: skip
        return show_examples(f"configs/{task}.py", [f"{key}={x}" for key, x in values.items()], step, 8)

    rows = [("w1 w2", "bad"), ("w3", "good"), ("w4 w5y7", "bad"), ("w6 w7", "good")]
    assert "bad: [CLS] w4 w5y7 [SEP]" in shown("classify", write_csv(tmp_path / "t.csv", rows * 2))
    with pytest.raises(BertJaxError, match="--step"):
        shown("classify", tmp_path / "t.csv", 3)
    (tmp_path / "t.conll").write_text("w1 O\nw5y7 B-PER\nw6 I-PER\n\nw9 O\n\n" * 4)
    assert "[CLS] w1 w5/B-PERy7 w6/I-PER [SEP]" in shown("tag", tmp_path / "t.conll")
    answers = {"text": ["w3 w4"], "answer_start": [3]}
    asked = [{"question": f"w{n}", "context": "w2 w3 w4 w5", "answers": answers} for n in range(8)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    assert "w2 w3/answer w4/answer w5 [SEP]" in shown("answer", tmp_path / "t.jsonl")
