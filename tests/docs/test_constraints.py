"""The versions of launch/constraints.txt are those that these tests run with."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support.environments import PYTHONS
from tests.support.project import ROOT
from tests.support.requirements import required_packages

CONSTRAINTS = ROOT / "launch" / "constraints.txt"
LINE = re.compile(r'([a-z0-9-]+)==([0-9.a-z]+)(?:; (python_version (?:==|>=|<) "3\.\d+"))?')


def versions() -> Iterator[tuple[str, str, Marker | None]]:
    """Name, version and the Pythons it is for, line by line."""
    for line in CONSTRAINTS.read_text().splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, f"{line!r} is more than a name, a version and a Python"
            yield match[1], match[2], match[3] and Marker(match[3])


def listed(python: str | None = None) -> dict[str, str]:
    """Versions by name for a Python, by default this one."""
    environment = {} if python is None else {"python_version": python}
    lines = [(name, version) for name, version, for_ in versions() if not for_ or for_.evaluate(environment)]
    assert len(dict(lines)) == len(lines), "a name has two versions"
    return dict(lines)


def test_installed_are_the_versions_listed():
    differing = {}
    for name, version in listed().items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # of another extra or system
        if installed != version:
            differing[name] = f"{installed} is installed, {version} is listed"
    assert not differing, "`pip install -c launch/constraints.txt -e .[dev]` installs what is listed"


def test_everything_needed_is_listed():
    assert required_packages() - listed().keys() == set()


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_has_a_version_of_everything(python):
    names = {name for name, *_ in versions()}
    assert listed(python).keys() == names


@pytest.mark.parametrize("python", PYTHONS)
def test_the_bounds_of_pyproject_hold_what_was_tried(python):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert python in SpecifierSet(project["requires-python"])
    bounds = [
        *project["dependencies"],
        *(bound for extra in ("train", "dev") for bound in project["optional-dependencies"][extra]),
    ]
    outside = {
        requirement.name: installed
        for requirement in map(Requirement, bounds)
        if (installed := listed(python).get(canonicalize_name(requirement.name)))
        and installed not in requirement.specifier
    }
    assert not outside
