"""A run that the tests of the loop and of checkpoints share."""

import shutil

import pytest

from bert_jax.training.loop import train
from tests.support.tiny_pretraining import Batches, tiny_pretraining


@pytest.fixture(scope="module")
def finished_run(shared_steps, tmp_path_factory):
    """A run of 20 steps with checkpoints at 5, 10, 15 and 20."""
    workdir = tmp_path_factory.mktemp("loop") / "run"
    task, config = tiny_pretraining(checkpoint_keep=9)
    train(task, Batches(), config, workdir)
    return workdir


@pytest.fixture
def copied_run(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")
