"""launch/environment.sh with stand-ins for the Pythons of a machine: which it takes, and when it installs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.project import ROOT

# Answers what python.sh asks, and notes what is installed; its environments have a Python of the same version.
PYTHON = """#!/bin/bash
case "$*" in
  *ensurepip*) {answer} ;;
  *executable*) echo "$0" ;;
  "-m venv --clear "*)
    rm -rf "$4" && mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && touch "$4/bin/activate"
    echo "$0 made $4" >>made ;;
  "-m pip "*) echo "$0 $*" >>installed ;;
esac
"""


class Machine:
    def __init__(self, folder: Path):
        self.project, self.home = folder / "project", folder / "home"
        for place in (self.project / "launch", self.home, folder / "bin"):
            place.mkdir(parents=True)
        names = ("environment.sh", "usage.sh", "python.sh", "constraints.txt")
        for name in ("pyproject.toml", *(f"launch/{name}" for name in names)):
            shutil.copy(ROOT / name, self.project / name)
        self.path = folder / "bin"
        for program in ("bash", "cat", "cmp", "cp", "dirname", "grep", "mkdir", "rm", "touch"):
            (self.path / program).symlink_to(shutil.which(program))

    def python(self, name: str, answer: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PYTHON.format(answer=answer))
        path.chmod(0o755)
        return path

    def prepare(self, code: int = 0, **variables) -> str:
        """What sourcing environment.sh prints."""
        environment = {"PATH": str(self.path), "HOME": str(self.home)} | variables
        command = ["bash", "-c", "source launch/environment.sh dev"]
        ran = subprocess.run(command, cwd=self.project, env=environment, capture_output=True, text=True)
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    def made(self) -> list[str]:
        note = self.project / "made"
        return note.read_text().splitlines() if note.exists() else []

    def installed(self) -> int:
        return (self.project / "installed").read_text().count("-e .[train,dev]")


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_the_newest_that_was_tried_is_taken(machine):
    machine.python("python3", "echo 3.14")  # not tried
    machine.python("python3.13", "exit 127")  # pyenv's, of a version that is not chosen
    python = machine.python("python3.12", "echo 3.12")
    machine.python("python3.11", "echo 3.11")
    assert f"for Python 3.12 ({python};" in machine.prepare()
    assert machine.made() == [f"{python} made .venv"]


def test_one_of_pyenv_is_found(machine):
    machine.python("python3.11", "echo 3.11")
    path = machine.python("../pyenv/versions/3.13.2/bin/python", "echo 3.13")
    assert "for Python 3.13 (" in machine.prepare(PYENV_ROOT=str(machine.path.parent / "pyenv"))
    assert machine.prepare(VENV=".venv-home", HOME=str(machine.path)).count("for Python 3.11 (") == 1
    shutil.move(path.parents[2], machine.home / ".pyenv/versions")
    assert "for Python 3.13 (" in machine.prepare(VENV=".venv-other")


def test_an_environment_keeps_its_python_until_another_is_chosen(machine):
    machine.python("python3.11", "echo 3.11")
    assert "for Python 3.11 (" in machine.prepare()
    newer = machine.python("python3.13", "echo 3.13")
    assert machine.prepare() == "" and machine.installed() == 1
    with open(machine.project / "launch/constraints.txt", "a") as constraints:
        constraints.write("more==1\n")
    assert "for Python 3.11 (.venv/bin/python;" in machine.prepare() and machine.installed() == 2
    assert len(machine.made()) == 1
    assert f"for Python 3.13 ({newer};" in machine.prepare(PYTHON=str(newer)) and machine.installed() == 3
    assert machine.made()[1:] == [f"{newer} made .venv"]
    assert machine.prepare(PYTHON=str(newer)) == machine.prepare() == "" and machine.installed() == 3


def test_without_one_that_was_tried_it_is_told_what_to_install(machine):
    machine.python("python3", "echo 3.14")
    wanted = "bert_jax needs Python 3.13 3.12 3.11"
    assert wanted in machine.prepare(code=1)
    assert "; python3 is 3.14: install one" in machine.prepare(code=1, PYTHON="python3")
    assert "; none is not a Python with venv:" in machine.prepare(code=1, PYTHON="none")
    assert not machine.made() and not os.path.exists(machine.project / ".venv")
