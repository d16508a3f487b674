"""The versions of launch/constraints.txt are those that these tests run with."""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = Path(__file__).parent.parent / "launch" / "constraints.txt"
EXTRAS = {"", "dev"}


def listed() -> dict[str, str]:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.a-z]+", line) for line in lines), "names and versions alone"
    return dict(line.split("==") for line in lines)


def needed(name: str = "bert-jax", extras: frozenset[str] = frozenset(EXTRAS)) -> set[str]:
    """The packages that a package needs, and what those need."""
    needed_by_name, open_ends = set(), [(name, extras)]
    while open_ends:
        name, extras = open_ends.pop()
        for requirement in map(Requirement, metadata.requires(name) or ()):
            marker = requirement.marker
            wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
            package = (canonicalize_name(requirement.name), frozenset(requirement.extras | {""}))
            if wanted and package not in needed_by_name:
                needed_by_name.add(package)
                open_ends.append(package)
    return {name for name, _ in needed_by_name}


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
    assert needed() - listed().keys() == set()
