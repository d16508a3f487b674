"""Tables in a program's memory, which are read by name, like files: `memory:NAME`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bert_jax.core.errors import BertJaxError

PREFIX = "memory:"
# Name -> (place, row) of each row; places are written as in Python, so the first is texts[0].
TABLES: dict[str, Sequence[tuple[str, dict]]] = {}


@contextmanager
def tables_in_memory(tables: Mapping[str, Sequence[tuple[str, dict]]]) -> Iterator[None]:
    """Make each table readable as `memory:NAME` inside the with block."""
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
        raise BertJaxError(f"{name} was in the memory of a program that has ended; run that program again")
    return iter(TABLES[table])
