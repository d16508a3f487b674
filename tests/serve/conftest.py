import pytest


@pytest.fixture(scope="session")
def served_models(tmp_path_factory):
    """Name -> the directory of a small model of each kind, and of an index."""
    from tests.support.served_models import write_served_models

    return write_served_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def served(served_models):
    """The address of a server of all of them, which ONNX Runtime computes: its programs need no compilation."""
    from tests.serve.processes import serving

    with serving(served_models, "--engine", "onnxruntime") as url:
        yield url
