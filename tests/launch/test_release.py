"""launch/release.sh: what must not be released is refused, what may be is built, and nothing is uploaded."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import bert_jax
from tests.support.project import ROOT

NEEDED = (
    "bert_jax/__init__.py",
    "CHANGELOG.md",
    *(f"launch/{name}.sh" for name in ("release", "usage", "python")),
)
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)]*)\)")
TAG = f"v{bert_jax.__version__}"


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    """A repository whose tests, which take long, are a word in a file."""
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".ci").mkdir()
    for name in (".ci/run", "launch/test.sh"):
        (tmp_path / name).write_text('#!/bin/sh\nexit "$(cat result)"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "result").write_text("1")
    git(tmp_path, "init", "-q")
    return tmp_path


def released(project: Path, **variables: str) -> subprocess.CompletedProcess:
    git(project, "add", "-A")
    git(project, "commit", "-q", "--allow-empty", "-m", "a change")
    return start(project, **variables)


def start(project: Path, **variables: str) -> subprocess.CompletedProcess:
    command = [project / "launch/release.sh"]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)


def refused(ran: subprocess.CompletedProcess) -> str:
    assert ran.returncode == 1 and ran.stderr.startswith("release.sh: ") and ran.stderr.count("\n") == 1, ran
    return ran.stderr


def test_failing_tests_are_refused(project):
    assert "the tests fail" in refused(released(project))


def test_what_is_not_committed_is_refused(project):
    assert "not committed" in refused(start(project))


def test_a_version_that_the_changelog_does_not_begin_with_is_refused(project):
    path = project / "bert_jax/__init__.py"
    path.write_text(re.sub('__version__ = ".*"', '__version__ = "9.8.7"', path.read_text()))
    assert f"version 9.8.7, and CHANGELOG.md {bert_jax.__version__} as" in refused(released(project))


def test_a_version_that_was_released_is_refused(project):
    released(project)
    git(project, "tag", TAG)
    assert f"the tag {TAG} is that of another commit" in refused(released(project))


@pytest.mark.long
@pytest.mark.parametrize("repository", ["", "https://example.org/me/bert"])
def test_what_can_be_released_is_built_with_the_links_of_its_repository(project, repository):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    for name in ("bert_jax", "configs"):
        shutil.copytree(ROOT / name, project / name, dirs_exist_ok=True)
    (project / "result").write_text("0")
    (project / ".gitignore").write_text("dist/\n__pycache__/\n")
    ran = released(project, REPOSITORY=repository)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith(f"  git tag {TAG} && git push origin {TAG}\n  python -m twine upload dist/*\n")
    (archive,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        output = opened.extractfile(f"{archive.name.removesuffix('.tar.gz')}/PKG-INFO").read().decode()
    assert ("Project-URL: Source" in output) == bool(repository)
    written = LINK.findall((ROOT / "README.md").read_text())
    shown = [(picture, address_of(repository, picture, link)) for picture, link in written]
    assert LINK.findall(output) == (shown if repository else written)


def address_of(repository: str, picture: str, link: str) -> str:
    if link.startswith(("https:", "#")):
        return link
    return f"{repository}/{'raw' if picture else 'blob'}/{TAG}/{link}"
