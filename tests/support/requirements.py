"""The packages that this one needs."""

from collections.abc import Iterable
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


def modules_of_others(wanted: Iterable[Requirement]) -> list[str]:
    """The modules installed here that belong to none of these packages, nor to what they need."""
    packages = {
        canonicalize_name(name)
        for requirement in wanted
        if not requirement.marker or requirement.marker.evaluate()
        for name in (
            requirement.name,
            *required_packages(requirement.name, frozenset(requirement.extras | {""})),
        )
    }
    owners = metadata.packages_distributions()
    missing = [name for name, by in owners.items() if not packages & {canonicalize_name(p) for p in by}]
    return [name for name in missing if name != "bert_jax"]
