"""`recipes`: pre-training recipes after equal minutes."""

import json

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.metrics.classification import score_single_label
from bert_jax.training.workdir import Workdir
from tests.bench import gain, recipes
from tests.bench.__main__ import main
from tests.bench.gain import SettingScores
from tests.bench.recipe import Recipe
from tests.support.made_up_language import random_documents
from tests.support.pretraining_runs import RUN_CONFIG, make_corpus
from tests.support.project import ROOT

PRETRAIN, CLASSIFY = f"{ROOT}/configs/pretrain.py:tiny", f"{ROOT}/configs/classify.py"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def flags(corpus, workdir, *more):
    settings = RUN_CONFIG | {
        "data.corpora": corpus, "model.attention_probs_dropout_prob": 0, "log.evaluate_every": 20,
        "checkpoints.every": 40,
    }  # fmt: skip
    del settings["steps"]
    return [
        "recipes", "--config", f"{PRETRAIN} data.sentence_objective=none", *more,
        "--minutes", "0.1", "--workdir", str(workdir), *(f"--config.{k}={v}" for k, v in settings.items()),
    ]  # fmt: skip


def test_the_minutes_say_how_many_steps(tmp_path, monkeypatch):
    """Of the steps that were timed, the later half counts; a line of such a run stands for three of them."""

    def train(_, directory, *__):
        lines = [
            {"kind": "train", "step": step, "time": {"seconds": 0.3 if step > 15 else 9.0}}
            for step in range(3, recipes.TIMED + 1, 3)
        ]
        directory.mkdir()
        Workdir(directory).metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))

    monkeypatch.setattr(Recipe, "train", train)
    plan, recipe = recipes.Plan(tmp_path / recipes.PLAN, 10), Recipe(PRETRAIN, ("seed=1",))
    assert plan.steps(1, recipe, tmp_path / "1", "") == 6000
    assert [path.name for path in tmp_path.iterdir()] == [recipes.PLAN]
    for minutes, other, message in (
        (5, recipe, "holds recipes of 10 minutes; change --minutes or --workdir"),
        (10, Recipe(PRETRAIN), "recipe 1 is .*seed=1; name the recipes in the same order"),
    ):
        with pytest.raises(BertJaxError, match=message):
            recipes.Plan(tmp_path / recipes.PLAN, minutes).steps(1, other, tmp_path / "1", "")


@pytest.mark.long
def test_labels_show_what_a_recipe_is_worth(corpus, tmp_path, monkeypatch, capsys):
    """Each arm at its better rate: here the one that learns."""
    monkeypatch.setattr(recipes, "count_steps", lambda *_: 40)
    words = random_documents(40, seed=6)
    rows = [{"text": " ".join(words[n][0]), "label": "ab"[n % 2]} for n in range(40)]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tuning = (
        f"{CLASSIFY} data.train={tmp_path}/labels.jsonl data.validation={tmp_path}/labels.jsonl num_seeds=2 epochs=8 "
        "data.calibration_ratio=0 head_init=pretrained sweep=optimizer.learning_rate=[1e-9,1e-2]"
    )
    asked = flags(corpus, tmp_path / "out", "--labels", tuning)
    assert main(asked) == 0
    arms = tmp_path / "out/1/labels/1"
    of_labels = json.loads((arms / gain.FACTS).read_text())["gain"]
    assert of_labels["score"] == "accuracy" and of_labels["standard_error"] > 0
    for arm in gain.CONDITIONS:
        assert of_labels[f"{arm}_setting"] == "optimizer.learning_rate=0.01"
        of_runs = [
            json.loads(path.read_text().splitlines()[-1])["accuracy"]
            for path in sorted((arms / arm / "optimizer.learning_rate=0.01").glob("seed=*/metrics.jsonl"))
        ]
        assert of_labels[arm] == pytest.approx(np.mean(of_runs)) and len(of_runs) == 2
    begun = {
        arm: Workdir(arms / arm / "optimizer.learning_rate=0.01/seed=0").read_run()["config"]["init"]
        for arm in gain.CONDITIONS
    }
    assert begun == {"untrained": f"{tmp_path}/out/1/untrained/model", "trained": f"{tmp_path}/out/1/model"}

    monkeypatch.setattr(Recipe, "train", lambda *_: None)  # what is known is not trained again
    assert main(asked) == 0
    assert "labels 1, accuracy: " in capsys.readouterr().out
    assert main([*asked, "--labels", tuning.replace("epochs=8", "epochs=9")]) == 1
    assert "give the same --labels in the same order" in capsys.readouterr().err


def scores(*rights: str) -> SettingScores:
    """Of each seed, which examples are right."""
    sums = [score_single_label(list(right), list("1" * len(right)), ("0", "1")) for right in rights]
    return SettingScores("", "accuracy", sums)


def test_the_error_of_a_gain_holds_seeds_and_examples():
    """Runs that differ by nothing leave the sample's error; a sample that all runs get right leaves the seeds'."""
    half, all_right, most = "10" * 50, "1" * 100, "1" * 80 + "0" * 20
    steady = gain.compute_gain(Recipe(CLASSIFY), scores(half, half), scores(all_right, all_right))
    assert steady.difference == pytest.approx(0.5)
    assert steady.standard_error == pytest.approx((0.5 * 0.5 / 100) ** 0.5, rel=0.1)
    seeds = gain.compute_gain(Recipe(CLASSIFY), scores(most, all_right), scores(most, all_right))
    assert seeds.difference == 0
    assert seeds.standard_error == pytest.approx((2 * 0.2**2 / 2 / 2) ** 0.5)
