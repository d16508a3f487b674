"""`recipes`: pre-training recipes after equal minutes."""

import json

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.metrics.classification import score_single_label
from bert_jax.training.workdir import Workdir
from tests.bench import gain, recipes
from tests.bench.gain import SettingScores
from tests.bench.recipe import Recipe
from tests.support.project import ROOT

PRETRAIN, CLASSIFY = f"{ROOT}/configs/pretrain.py:tiny", f"{ROOT}/configs/classify.py"


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
