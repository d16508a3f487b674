"""The packages that this one needs."""

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = {"", "dev"}


def required_packages(name: str = "bert-jax", extras: frozenset[str] = frozenset(EXTRAS)) -> set[str]:
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
    return {name for name, _ in needed_by_name} - {"bert-jax"}  # whose extras name one another
