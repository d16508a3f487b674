"""A run is opened with data that say of themselves what `--dry-run` tells."""

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.training.opened_run import open_run
from bert_jax.training.run_config import RunConfig
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
