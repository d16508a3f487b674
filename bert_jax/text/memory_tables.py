"""Tables in a program's memory, which are read by name, like files: `memory:NAME`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bert_jax.core.errors import BertJaxError

MEMORY_PREFIX = "memory:"
# Name -> (place, row) of each row; places are written as in Python, so the first is texts[0].
TABLES: dict[str, Sequence[tuple[str, dict]]] = {}


@contextmanager
def register_tables(tables: Mapping[str, Sequence[tuple[str, dict]]]) -> Iterator[None]:
    """Make each table readable as `memory:NAME` inside the with block."""
    before = dict(TABLES)
    TABLES.update(tables)
    try:
        yield
    finally:
        TABLES.clear()
        TABLES.update(before)


def read_memory_table(name: str) -> Iterator[tuple[str, dict]]:
    table = name.removeprefix(MEMORY_PREFIX)
    if table not in TABLES:
        raise BertJaxError(f"{name} was in the memory of a program that has ended; run that program again")
    return iter(TABLES[table])
