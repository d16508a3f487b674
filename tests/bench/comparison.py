"""The result of a comparison: rows of the guide's tables."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from bert_jax.bench.timing import describe_load
from tests.bench.turns import OURS, Ratio, is_ours, ratio

DTYPES = ("float32", "bfloat16")
HEADER = ("", "bert_jax", "compared with", *(f"in {dtype}" for dtype in DTYPES))


@dataclass(frozen=True)
class Row:
    """Our figure in each dtype, that of another library, and how many times as fast we are."""

    what: str
    ours: dict[str, str]  # dtype -> figure
    other: str = ""  # the library and its figure
    ratios: dict[str, Ratio] = field(default_factory=dict)  # dtype -> ratio
    unit: str = ""  # of our figures

    def cells(self, mark: str = "") -> list[str]:
        figures = (f"in {dtype} {text}" if dtype == "bfloat16" else text for dtype, text in self.ours.items())
        ratios = [f"{self.ratios[dtype]}{mark}" if dtype in self.ratios else "" for dtype in DTYPES]
        return [self.what, f"{', '.join(figures)} {self.unit}".strip(), self.other, *ratios]


@dataclass(frozen=True)
class Comparison:
    rows: list[Row]
    machine: dict
    notes: list[str] = field(default_factory=list)

    def cells(self) -> list[list[str]]:
        return [row.cells(" (busy machine)" if self.machine["busy"] else "") for row in self.rows]

    def shown(self, as_json: bool) -> str:
        if as_json:
            return json.dumps(asdict(self))
        return "\n".join([*markdown(self.cells()), "", *self.notes, describe_load(self.machine)])


def markdown(rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (HEADER, ["---"] * len(HEADER), *rows)]


def dtype_of(contender: str) -> str:
    """Return the dtype of one of ours, whose name is "bert_jax DTYPE"."""
    return contender.removeprefix(f"{OURS} ")


def dtype_ratios(values: dict[str, Sequence[float]], other: str) -> dict[str, Ratio]:
    """Compare the seconds of each round of another contender with ours, by dtype."""
    return {dtype_of(name): ratio(ours, values[other]) for name, ours in values.items() if is_ours(name)}
