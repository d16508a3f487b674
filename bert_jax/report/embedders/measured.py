"""How well an embedder did on some data, and what a person is shown of it."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from bert_jax.metrics import Sums
from bert_jax.report.page import ERRORS, cut, picture, table

SHOWN = ERRORS  # rows of a table


@dataclass(frozen=True)
class Examples:
    """A few examples, as rows of a table."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def lines(self) -> list[str]:
        rows = table(self.header, self.rows) if self.rows else ["There are none."]
        return [f"## {self.title}", "", self.note, "", *rows, ""]

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [
            {name: cut(x) if isinstance(x, str) else x for name, x in zip(self.header, row, strict=True)}
            for row in self.rows
        ]


@dataclass(frozen=True)
class Picture:
    """A picture in a report, with what is said of it."""

    title: str
    what: str  # it shows
    file: str
    note: str = ""

    @property
    def lines(self) -> list[str]:
        return [
            f"## {self.title}",
            "",
            *([self.note, ""] if self.note else []),
            picture(self.what, self.file),
            "",
        ]


@dataclass(frozen=True)
class Measured(ABC):
    name: str  # of the embedder
    sums: Sums
    notes: list[str]  # on how it read the texts

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What --json says of it beside the scores."""

    @abstractmethod
    def pictures(self, directory: Path, other: Self | None = None) -> list[Picture]:
        """Of one embedder, or of two on the same data."""

    def sides(self, other: Self | None) -> dict[str, Self]:
        """By the letter that tells the two apart; "" where there is one."""
        return {"": self} if other is None else {"A": self, "B": other}

    @property
    @abstractmethod
    def worst(self) -> Examples:
        """Where it is most clearly wrong."""

    @abstractmethod
    def changes(self, other: Self) -> tuple[Examples, Examples]:
        """Where `other` is better than this one, and where it is worse."""


class Data(Protocol):
    """Data of one sort, which has been read."""

    what: str  # it is, for people
    units: str  # which are resampled
    notes: list[str]

    def measure(self, embedder) -> Measured: ...


def lettered(name: str, letter: str) -> str:
    """The file of a picture.

    >>> lettered("cosines", "A"), lettered("cosines", "")
    ('cosines_a.png', 'cosines.png')
    """
    return f"{name}_{letter.lower()}.png" if letter else f"{name}.png"


def duplicates(items: Sequence[Hashable], places: Sequence[str], noun: str) -> list[str]:
    """A note on items that stand twice, if there are any.

    >>> duplicates(["a", "b", "a"], ["row 1", "row 2", "row 3"], "texts")
    ['1 of 3 texts is a duplicate of an earlier one (row 3 repeats row 1)']
    """
    first: dict[Hashable, int] = {}
    repeated = [(n, first[item]) for n, item in enumerate(items) if first.setdefault(item, n) != n]
    if not repeated:
        return []
    (later, earlier), verb = repeated[0], "is a duplicate" if len(repeated) == 1 else "are duplicates"
    where = f"({'the first: ' * (len(repeated) > 1)}{places[later]} repeats {places[earlier]})"
    return [f"{len(repeated):,} of {len(items):,} {noun} {verb} of an earlier one {where}"]
