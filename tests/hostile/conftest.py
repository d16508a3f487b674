import pytest

from hostile import material


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The folder that `material.make` fills; tests only read it."""
    return material.make(tmp_path_factory.mktemp("material"))
