"""The server's page in a real browser, in an environment that has the browser's driver."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.project import ROOT


@pytest.mark.long
def test_a_person_at_a_browser_can_ask_each_model(served):
    assert shutil.which("chromium"), "the page is tested in Chromium; install it with the system's packages"
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin/python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "playwright", "pytest"], check=True)
        plugin = ["-p", "tests.serve.browser", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull]
        checks = [
            python,
            "-m",
            "pytest",
            "-q",
            *plugin,
            "--rootdir",
            ROOT,
            ROOT / "tests/serve/page_checks.py",
        ]
        environment = os.environ | {"BERT_JAX_SERVER_URL": served}
        done = subprocess.run(checks, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
