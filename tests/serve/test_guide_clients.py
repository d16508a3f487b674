"""The clients of configs/guides/serve.md, each from its own package, against a server that asks for their key."""

import re
import subprocess

import pytest

from tests.serve.processes import serving
from tests.support.environments import new_environment, run_command
from tests.support.project import ROOT
from tests.support.served_models import write_served_models

pytestmark = pytest.mark.long  # it installs the clients


def test_the_clients_of_the_guide_get_answers(tmp_path):
    embedder = write_served_models(tmp_path)["embedder"]
    guide = (ROOT / "configs/guides/serve.md").read_text()
    block = re.search(r"^```python\n(# pip install ([^\n]*)\n.*?)^```$", guide, re.M | re.S)
    with new_environment() as programs:
        run_command(programs / "pip", "install", "--quiet", *block[2].split())
        with serving({"minilm": embedder}, "--engine", "onnxruntime", API_KEY="KEY") as address:
            code = block[1].replace("http://localhost:3000", address)
            run_command(programs / "python", "-c", code, HF_HUB_OFFLINE="0")  # 1 refuses ours, too
            wrong = code.replace("KEY", "OTHER").partition("import cohere")[0]
            ran = subprocess.run([programs / "python", "-c", wrong], capture_output=True, text=True)
            assert "AuthenticationError" in ran.stderr
