"""The clients of configs/guides/serve.md, each from its own package, against a server that asks for their key."""

import os
import re
import subprocess
import sys

import pytest

from bert_jax.export.onnx_directory import export_onnx
from tests.support.minilm import MINILM
from tests.support.processes import process_environment
from tests.support.project import ROOT

pytestmark = pytest.mark.long  # it installs the clients


@pytest.fixture
def server(tmp_path):
    """The address of a server."""
    export_onnx(MINILM, tmp_path / "model")
    command = ["serve", f"minilm={tmp_path / 'model'}", "--engine", "onnxruntime", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", *command],
        env=process_environment() | {"API_KEY": "KEY"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process.stdout.readline().split()[-1]
    process.terminate()
    process.communicate(timeout=70)


def test_the_clients_of_the_guide_get_answers(server, tmp_path):
    guide = (ROOT / "configs/guides/serve.md").read_text()
    block = re.search(r"^```python\n(# pip install (.*)\n.*?)^```$", guide, re.M | re.S)
    code, packages = block[1].replace("http://localhost:3000", server), block[2].split()
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for command in (
        [sys.executable, "-m", "venv", tmp_path / "venv"],
        [tmp_path / "venv/bin/pip", "install", "--quiet", *packages],
        [tmp_path / "venv/bin/python", "-c", code],
    ):
        ran = subprocess.run(command, cwd=tmp_path, env=bare, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr[-3000:]
    wrong = code.replace("KEY", "OTHER").partition("import cohere")[0]
    ran = subprocess.run(
        [tmp_path / "venv/bin/python", "-c", wrong], env=bare, capture_output=True, text=True
    )
    assert "AuthenticationError" in ran.stderr
