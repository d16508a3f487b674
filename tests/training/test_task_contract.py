"""What the step asks of a task: losses that exist only with dropout, and one line for what it cannot use."""

import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.losses.loss import Loss, weighted_loss
from bert_jax.tasks.pretrain import PretrainTask
from bert_jax.training.log import read_metrics
from bert_jax.training.loop import train
from bert_jax.training.opened_run import open_run
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import abstract_batch, abstract_constants, abstract_state
from bert_jax.training.step import make_evaluation, make_step
from tests.support.tiny_pretraining import Batches, tiny_pretraining


@dataclass(frozen=True)
class TwoPasses(PretrainTask):
    """Two passes over a row, with dropout of their own, should pool to the same vector."""

    def outputs(self, params, batch, constants=None, key=None):
        outputs = super().outputs(params, batch, constants, key)
        if key is None:  # without dropout a second pass would be the same
            return outputs
        again = super().outputs(params, batch, constants, jax.random.fold_in(key, 1))
        return outputs | {"apart": ((outputs["pooled"] - again["pooled"]) ** 2).mean(-1)}

    def losses(self, outputs, batch):
        losses = super().losses(outputs, batch)
        if "apart" in outputs:
            losses["consistency_loss"] = weighted_loss(outputs["apart"], jnp.ones(len(outputs["apart"])))
        return losses


def two_passes(kind=TwoPasses, **changes):
    task, config = tiny_pretraining(**changes)
    return kind(**vars(task)), config


@pytest.mark.slow
def test_a_loss_may_exist_only_with_dropout(tmp_path):
    task, config = two_passes(steps=4, gradient_accumulation_steps=2)
    train(task, Batches(), config, tmp_path / "run")
    lines = read_metrics(tmp_path / "run/metrics.jsonl")
    trained = [line for line in lines if line["kind"] == "train"]
    assert trained and all(line["consistency_loss"] > 0 for line in trained)
    assert all("consistency_loss" not in line for line in lines if line["kind"] == "validation")


DICT, ROWS = (
    r"must return a dict of Loss\(sum, weight\)",
    r"must return arrays \[B, \.\.\.\] of 32 rows, not of shape",
)
FAULTS = {
    "a list": ("losses", lambda pooled: [Loss(1.0, 1.0)], f"`losses` {DICT}, not a list"),
    "no loss": ("losses", lambda pooled: {}, "`losses` returns none"),
    "by row": (
        "losses", lambda pooled: {"x": Loss(pooled.sum(-1), jnp.ones(32))},
        rf"`losses` {DICT} of two numbers, but those of x have the shapes \[\(32,\), \(32,\)\]",
    ),
    "a score": ("scores", lambda pooled: {"x": pooled.sum()}, f"`scores` {DICT}, and x is no Loss"),
    "predictions": ("predictions", lambda pooled: pooled.sum(), rf"`predictions` {ROWS} \(\)"),
}  # fmt: skip


@dataclass(frozen=True)
class Averaging(PretrainTask):
    """A task of whole batches, whose outputs have no rows."""

    whole_batch = True

    def outputs(self, params, batch, constants=None, key=None):
        return {"mean": super().outputs(params, batch, constants, key)["pooled"].mean()}

    def losses(self, outputs, batch):
        return {"x": Loss(outputs["mean"], jnp.float32(1))}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_contract_is_one_line(fault):
    member, wrong, message = FAULTS[fault]
    members = {member: lambda self, outputs, batch: wrong(outputs["pooled"])}
    assert re.fullmatch(
        f"the task Wrong: {message}; see training/objective.py",
        error_of(type("Wrong", (PretrainTask,), members)),
    )


@pytest.mark.slow
def test_outputs_of_a_whole_batch_have_rows():
    assert re.fullmatch(
        rf"the task Averaging: `outputs` {ROWS} \(\); see training/objective.py", error_of(Averaging)
    )


def error_of(kind) -> str:
    """The error of a task while its step and its evaluation are traced."""
    task, config = two_passes(kind)
    mesh = make_mesh(config.mesh)
    state, constants = abstract_state(task, config, mesh), abstract_constants(task, config, mesh)
    batch = abstract_batch(Batches().features(0), config, mesh)
    with pytest.raises(BertJaxError) as error:
        jax.eval_shape(make_step(task, config, mesh), state, batch, constants)
        jax.eval_shape(make_evaluation(task, config, mesh), state.params, batch, constants)
    return str(error.value)


def test_data_that_are_no_batch_source_are_refused_before_the_run():
    class Other:
        pass

    given = RunConfig(task="mine")
    with pytest.raises(
        BertJaxError, match="the data of the task mine, an Other, must inherit from BatchSource"
    ):
        open_run(lambda config, directories: (None, Other(), config), given)
    run = open_run(lambda config, directories: (None, Batches(), config), given)
    assert list(run.data.facts()) == [] and run.data.padding() is None
