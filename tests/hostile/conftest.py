import pytest

from tests.hostile import material
from tests.hostile.forks import Forks


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The folder that `material.make` fills; tests only read it."""
    return material.make(tmp_path_factory.mktemp("material"))


@pytest.fixture(scope="module")
def forks():
    with Forks() as forks:
        yield forks
