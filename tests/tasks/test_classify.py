"""Classifiers of one class, of several labels and of numbers: they learn, and transformers opens them."""

import json
import random

import numpy as np
import pytest

from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.inference.load import load
from bert_jax.tasks import load_config as load_task
from bert_jax.training import warm_start
from tests.support.finetuning_runs import finetune
from tests.support.tables import write_csv
from tests.support.texts import marked_texts, random_texts

pytestmark = pytest.mark.usefixtures("shared_steps")


@pytest.fixture(scope="module")
def classified(tmp_path_factory, encoder_path):
    root = tmp_path_factory.mktemp("classify")
    train = write_csv(root / "train.csv", marked_texts(160, 0))
    validation = write_csv(root / "dev.csv", marked_texts(40, 1))
    lines = finetune(
        "classify",
        encoder_path,
        root / "run",
        **{"data.train": train, "data.validation": validation, "data.batching": "packed"},
    )
    return root, lines


@pytest.mark.ci
def test_a_head_for_other_labels_is_not_taken_over(encoder_path, tmp_path):
    rows = marked_texts(24, 0)
    given = {"data.train": write_csv(tmp_path / "t.csv", rows), "steps": 1, "log.evaluate_every": 1}
    given["data.validation"] = given["data.train"]
    finetune("classify", encoder_path, tmp_path / "two", **given)
    begun = load_task("configs/classify.py", [f"init={tmp_path / 'two/model'}", f"data.train={given['data.train']}",
                                              "data.max_length=32"])  # fmt: skip
    task, _, config = begun[0].open(begun[1], ModelDirectories())
    assert warm_start.read_initial_params(ModelDirectories(), config.init, task, 0)[1] == []
    other = write_csv(tmp_path / "three.csv", [(text, f"class {n % 3}") for n, (text, _) in enumerate(rows)])
    finetune(
        "classify",
        tmp_path / "two/model",
        tmp_path / "three",
        **given | {"data.train": other, "data.validation": other},
    )
    assert load(tmp_path / "three/model").labels == ("class 0", "class 1", "class 2")


@pytest.mark.slow
def test_a_classifier_learns_and_the_model_is_that_of_the_best_evaluation(classified):
    root, lines = classified
    assert [line["step"] for line in lines[:2]] == [0, 20], "an evaluation before training, and one an epoch"
    best = max(lines, key=lambda line: (line["accuracy"], -line["classify_loss"]))
    assert best["accuracy"] > 0.95
    model = load(root / "run" / "model")
    assert model.labels == ("bad", "good")
    right = [model.classify(text).label == label for text, label in marked_texts(40, 1)]
    assert np.mean(right) == pytest.approx(best["accuracy"])


@pytest.mark.ci
def test_several_labels_and_numbers_are_learnt(tmp_path, encoder_path):
    rng = random.Random(4)
    several, numbers = [], []
    for text in random_texts(160):
        has = [name for name in ("w2", "w3") if rng.random() < 0.5]
        several.append({"text": " ".join([*has, text]), "labels": has})
        numbers.append({"text": " ".join([*has, text]), "label": len(has) / 2})
    # Both words are a matter of luck for a head of initial values with so few texts, and none for a probe.
    for name, rows, problem_type, metric, head in (
        ("several", several, "multi_label", "f1_micro", "linear_probe"),
        ("numbers", numbers, "regression", "spearman", "pretrained"),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = {"data.train": path, "data.validation_ratio": 0.2, "problem_type": problem_type}
        given |= {"epochs": 12, "head_init": head}
        lines = finetune("classify", encoder_path, tmp_path / name, **given)
        assert max(line[metric] for line in lines) > 0.85
    config = json.loads((tmp_path / "numbers" / "model" / "config.json").read_text())
    assert config["problem_type"] == "regression"
    assert isinstance(load(tmp_path / "numbers" / "model").predict("w2 w9"), float)
    assert [x.label for x in load(tmp_path / "several" / "model").classify("w3 w2 w40")] != []
