"""Tables that a program holds, read by their names as files are: `memory:NAME`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bert_jax.errors import BertJaxError

PREFIX = "memory:"
TABLES: dict[
    str, Sequence[tuple[str, dict]]
] = {}  # (place, row), the place as in Python: texts[0] is the first


@contextmanager
def tables_in_memory(tables: Mapping[str, Sequence[tuple[str, dict]]]) -> Iterator[None]:
    """While open, each table is read as `memory:` and its name."""
    before = dict(TABLES)
    TABLES.update(tables)
    try:
        yield
    finally:
        TABLES.clear()
        TABLES.update(before)


def rows_in_memory(name: str) -> Iterator[tuple[str, dict]]:
    table = name.removeprefix(PREFIX)
    if table not in TABLES:
        raise BertJaxError(f"{name} was held by a program that has ended; run that program again")
    return iter(TABLES[table])
