"""Every script that a person starts says how it is used, and does nothing when it is asked or misused."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import LAUNCH, ROOT

SCRIPTS = sorted(path.name for path in LAUNCH.glob("*.sh") if os.access(path, os.X_OK))
PASS_ALL_ON = {"test.sh", "other_pythons.sh"}  # to pytest
TAKE_WORDS = PASS_ALL_ON | {"run.sh", "first_hour.sh", "local_pod.sh", "on_host.sh", "slurm.sh"}


@pytest.fixture
def copy(tmp_path):
    """A copy of the scripts on a machine without any program that could install or change something."""
    (tmp_path / "bin").mkdir()
    for program in ("basename", "bash", "dirname", "grep", "sed"):
        (tmp_path / "bin" / program).symlink_to(shutil.which(program))
    shutil.copytree(LAUNCH, tmp_path / "project/launch")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "project")
    return tmp_path / "project"


def start(copy: Path, *words: str) -> subprocess.CompletedProcess:
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    path = str(copy.parent / "bin")
    command = [f"{path}/bash", f"launch/{words[0]}", *words[1:]]
    ran = subprocess.run(command, cwd=copy, env={"PATH": path}, capture_output=True, text=True)
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before, "nothing is changed"
    return ran


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_how_it_is_used_and_does_nothing(copy, name):
    ran = start(copy, name, "--help")
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    assert name in ran.stdout and "set -" not in ran.stdout and "shellcheck" not in ran.stdout
    text = (LAUNCH / name).read_text(encoding="utf-8")
    for variable in re.findall(r"\$\{([A-Z_]+):-", text):
        assert variable in ran.stdout or variable.startswith("SLURM_"), f"{variable} is a setting of {name}"


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in PASS_ALL_ON])
def test_an_unknown_flag_or_word_is_refused(copy, name):
    wrong = ["--no-such-flag"] if name in TAKE_WORDS else ["--no-such-flag", "no-such-word"]
    for word in wrong:
        ran = start(copy, name, word)
        assert ran.returncode != 0
        assert ran.stderr.startswith(f"{name}: ") and word in ran.stderr and ran.stderr.count("\n") == 1, ran


def test_all_that_have_an_interpreter_can_be_started():
    assert len(SCRIPTS) > 12
    for path in LAUNCH.glob("*.sh"):
        assert path.read_text(encoding="utf-8").startswith("#!") is (path.name in SCRIPTS), path


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(LAUNCH.glob("*.py")), ids=lambda path: path.name)
def test_a_program_of_the_quickstart_does_the_same(path, tmp_path):
    for words, code in {("--help",): 0, ("--no-such-flag",): 2, ("a", "b"): 2}.items():
        ran = subprocess.run([sys.executable, path, *words], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == code and f"usage: {path.name}" in ran.stdout + ran.stderr, ran.stderr
    assert not list(tmp_path.iterdir())
