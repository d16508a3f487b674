"""The results of an embedder on some data, and how they are shown."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

from bert_jax.metrics.intervals import Interval, bootstrap_intervals
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.report.prediction_page import MAX_ERRORS, image_link, markdown_table, shorten

SHOWN = MAX_ERRORS  # at most this many rows in a table


@dataclass(frozen=True)
class ExampleTable:
    """A few examples, as rows of a table."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def lines(self) -> list[str]:
        rows = markdown_table(self.header, self.rows) if self.rows else ["There are none."]
        return [f"## {self.title}", "", self.note, "", *rows, ""]

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [
            {name: shorten(x) if isinstance(x, str) else x for name, x in zip(self.header, row, strict=True)}
            for row in self.rows
        ]


def difference_cells(gap: Interval) -> tuple[str, str, str]:
    """Return the cells of a difference in a table: its value, its interval, and whether it is significant."""
    return (
        f"{gap.value:+.4f}",
        f"{gap.low:+.4f} to {gap.high:+.4f}",
        "" if gap.low <= 0 <= gap.high else "yes",
    )


def picture_lines(title: str, what: str, file: str, note: str = "") -> list[str]:
    """Return the section of a picture, which shows `what`."""
    return [f"## {title}", "", *([note, ""] if note else []), image_link(what, file), ""]


@dataclass(frozen=True)
class EmbedderResults(ABC):
    name: str  # of the embedder
    sums: ScoreSums
    notes: list[str]  # on how the embedder read the texts

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        return bootstrap_intervals(self.sums)

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """The facts that --json adds to the scores."""

    @abstractmethod
    def pictures(self, directory: Path, other: Self | None = None) -> list[str]:
        """Draw the pictures of one embedder, or of two on the same data; return their sections of the report."""

    def sides(self, other: Self | None) -> dict[str, Self]:
        """Return the embedders by letter, A and B, or by "" if there is only one."""
        return {"": self} if other is None else {"A": self, "B": other}

    @property
    @abstractmethod
    def worst_examples(self) -> ExampleTable:
        """The examples that are most clearly wrong."""

    @abstractmethod
    def compare_with(self, other: Self) -> tuple[ExampleTable, ExampleTable]:
        """Return the examples on which `other` is better than this embedder, and those on which it is worse."""


class EvaluationData(Protocol):
    """Evaluation data of one kind, already read."""

    what: str  # a description of the data for the user
    units: str  # the units that are resampled for intervals
    notes: list[str]

    def measure(self, embedder) -> EmbedderResults: ...


def picture_file_name(name: str, letter: str) -> str:
    """Return the file name of a picture.

    >>> picture_file_name("cosines", "A"), picture_file_name("cosines", "")
    ('cosines_a.png', 'cosines.png')
    """
    return f"{name}_{letter.lower()}.png" if letter else f"{name}.png"


def note_duplicates(items: Sequence[Hashable], locations: Sequence[str], noun: str) -> list[str]:
    """Return a note on duplicate items, if there are any.

    >>> note_duplicates(["a", "b", "a"], ["row 1", "row 2", "row 3"], "texts")
    ['1 of 3 texts is a duplicate of an earlier one (row 3 repeats row 1)']
    """
    first: dict[Hashable, int] = {}
    repeated = [(n, first[item]) for n, item in enumerate(items) if first.setdefault(item, n) != n]
    if not repeated:
        return []
    (later, earlier), verb = repeated[0], "is a duplicate" if len(repeated) == 1 else "are duplicates"
    where = f"({'the first: ' * (len(repeated) > 1)}{locations[later]} repeats {locations[earlier]})"
    return [f"{len(repeated):,} of {len(items):,} {noun} {verb} of an earlier one {where}"]
