"""What tests of workers in this process share."""

import pytest

from bert_jax.cluster.worker import THREADS
from tests.support.small_models import write_model


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "classifier"
    write_model(path, heads=("classify",), labels=("bad", "good"))
    return path


@pytest.fixture
def worker_environment(monkeypatch) -> None:
    """What a worker sets in the environment is as before after the test."""
    for name in (*THREADS, "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "")
