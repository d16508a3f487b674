"""Items in groups of limited size."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def group_by_size(
    items: Iterable[Item], limit: float, size_of: Callable[[Item], float]
) -> Iterator[list[Item]]:
    """Yield lists of consecutive items whose sizes add up to `limit` or a little more; the last has the rest.

    >>> list(group_by_size(["a", "bbb", "c", "d"], 3, len))
    [['a', 'bbb'], ['c', 'd']]
    """
    group: list[Item] = []
    size = 0.0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= limit:
            yield group
            group, size = [], 0.0
    if group:
        yield group
