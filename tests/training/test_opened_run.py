"""A run is opened with data that say of themselves what `--dry-run` tells."""

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import part_of_run
from bert_jax.training.opened_run import open_run
from bert_jax.training.processes import print_notice, print_once
from bert_jax.training.run_config import LogConfig, RunConfig
from bert_jax.training.run_facts import step_facts
from tests.support.tiny_pretraining import Batches


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


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (6, "6; a validation at the end, a checkpoint at the end"),
        (40, "40; a validation every 20, a checkpoint at the end"),
        (2000, "2,000; a validation every 20, a checkpoint every 1,000"),
    ],
)
def test_what_a_short_run_does_only_at_its_end_is_called_so(steps, told):
    facts = dict(step_facts(Batches(), RunConfig(steps=steps, log=LogConfig(evaluate_every=20))))
    assert facts["steps"] == told


def test_a_part_of_a_run_says_only_what_no_other_part_has_said(capsys):
    for part in ("run 2 of 3", "run 3 of 3"):
        with part_of_run(part):
            print_once("60 examples to train on")
            print_notice("a text is truncated")
            print_notice(f"unusual in {part}")
    print_notice("a text is truncated")
    said = [
        "run 2 of 3: a text is truncated",
        "run 2 of 3: unusual in run 2 of 3",
        "run 3 of 3: unusual in run 3 of 3",
    ]
    assert capsys.readouterr().err.splitlines() == [*said, "a text is truncated"]
