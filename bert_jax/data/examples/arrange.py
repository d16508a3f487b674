"""Labelled examples in rows: which of a step's examples share a row, and how long the rows of a step are.

The examples of a step are given: a fixed number in a shuffled order. The arrangement decides only how much padding is
computed beside them, in one of three ways:

padded      a row for each example, all of one length
bucketed    a row for each example, as long as the step's longest
packed      a few rows, each with several examples that do not see one another
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np

from bert_jax.text.tokenizer import Encoding

RowLayout = Literal["packed", "bucketed", "padded"]
MOST_LENGTHS = 3  # each is a program
PLACE = "place"  # the target that is the number of a piece among those of its step


@dataclass(frozen=True)
class Costs:
    """What takes time beside the products of a step, on some platform."""

    program: float  # FLOPs of a step that take about as long as to compile a program
    # How many times as long attention takes as its products alone, by which rows of several texts cost more.
    attention: float = 1.0


# On two cores a program is compiled in 4 to 5 s, for any size of model; and of a 6-layer MiniLM's step a token took
# 220 us and 0.6 us more for each token of its row, where its products alone would take 0.1.
COSTS = {"cpu": Costs(5e11, 6.0)}
OF_ACCELERATORS = Costs(1e15)


@dataclass(frozen=True)
class BatchConfig:
    """How examples become the batches of a run."""

    layout: RowLayout
    examples: int  # of a step
    steps: int
    seed: int
    width: int  # of the model
    layers: int  # of the model
    longest: int  # tokens of a row, where the layout is "padded"
    multiple: int = 8  # lengths of rows are multiples of it
    shards: int = 1  # the number of rows is a multiple of it
    costs: Costs = COSTS["cpu"]
    # Of all pieces that runs draw their parts from, who share their programs where this is the same; (): of the run's.
    lengths: tuple[int, ...] = ()
    # (number of pieces, share of the steps) of each of several sets, one after the other; a step's are of one set.
    sets: tuple[tuple[int, float], ...] = ()
    together: int = 1  # so many pieces, one after the other, are always in the same step
    noun: str = "example"  # what people call a piece

    def program_cost(self, rows: int) -> float:
        """What it costs to compile a program, in the unit of `cost`: FLOPs are three passes of 4 x width of it."""
        return self.costs.program / (12 * self.width * self.layers * rows)

    def cost(self, lengths: Sequence[int], needed: np.ndarray, counts: np.ndarray) -> float:
        """Of one row in every step, in some unit: a layer's products with each token, and attention over the row."""
        length = np.asarray(lengths, np.float64)[np.searchsorted(lengths, needed)]
        return float((counts * length * (6 * self.width + self.costs.attention * length)).sum())


@dataclass(frozen=True, slots=True)
class Piece:
    """An example as the model reads it, or a window of one. `targets` are its parts of the batch's arrays by name:
    one value for a piece, or one for each of its tokens."""

    encoding: Encoding
    example: int  # its index in the list of examples
    targets: dict[str, Any]

    def __len__(self) -> int:
        return len(self.encoding.ids)


@dataclass(frozen=True)
class Target:
    """An array of a batch that is not the text's: [B, P, *shape] for the pieces of each row, or [B, L] where each token
    has a value."""

    dtype: str
    shape: tuple[int, ...] = ()
    each_token: bool = False


@dataclass(frozen=True)
class Arrangement:
    """Which pieces of each step share a row: `rows` of them, each with at most `packs` pieces."""

    rows: int
    packs: int
    steps: list[list[list[int]]] = field(repr=False)  # step -> row -> indices within the step
    lengths: list[int] = field(repr=False)  # of each step's rows


def arrange(
    steps: Sequence[Sequence[int]], config: BatchConfig, rows: int = 0, like: Sequence[Sequence[int]] = ()
) -> Arrangement:
    """The arrangement of steps that are given as the sizes of their pieces, at most `config.examples` of them.

    Runs whose steps are drawn from the same pieces in another order share their programs if `like` is the same.
    """
    like = like or steps
    rows = rows or (cheapest_rows(like, config) if config.layout == "packed" else config.examples)
    packs = most_packs(rows, config.examples)
    placed = [in_rows(sizes, rows, packs) for sizes in steps]
    if config.layout == "padded":
        return Arrangement(rows, packs, placed, [config.longest] * len(steps))
    needed = row_lengths(steps, placed, config.multiple)
    likely = needed
    if like != steps:
        likely = row_lengths(like, [in_rows(sizes, rows, packs) for sizes in like], config.multiple)
    usual = few_lengths(likely, config, config.program_cost(rows))
    few = np.array([*usual, max(needed)] if max(needed) > usual[-1] else usual)
    return Arrangement(rows, packs, placed, few[np.searchsorted(few, needed)].tolist())


def cheapest_rows(steps: Sequence[Sequence[int]], config: BatchConfig) -> int:
    sample, batch = steps[:: len(steps) // 200 + 1], config.examples
    share = len(sample) / len(steps)
    halved = [batch >> n for n in range(batch.bit_length()) if batch % (1 << n) == 0]
    fitting = [rows for rows in halved if rows % config.shards == 0] or [batch]

    def price(rows: int) -> float:
        placed = [in_rows(sizes, rows, most_packs(rows, batch)) for sizes in sample]
        needed = row_lengths(sample, placed, config.multiple)
        program = share * config.program_cost(rows)
        lengths = few_lengths(needed, config, program)
        steps_cost = config.cost(lengths, *np.unique(needed, return_counts=True))
        return rows * (steps_cost + len(lengths) * program)

    return min(fitting, key=price)


def most_packs(rows: int, batch: int) -> int:
    """Twice the even share: rows may differ, and the arrays still be small."""
    return min(batch, 2 * batch // rows) if rows < batch else 1


def in_rows(sizes: Sequence[int], rows: int, packs: int) -> list[list[int]]:
    """Indices of `sizes` in rows of even load: the longest first, each to the row with least in it.

    >>> in_rows([5, 9, 4, 2], rows=2, packs=4)
    [[1, 3], [0, 2]]
    """
    filled: list[list[int]] = [[] for _ in range(rows)]
    loads = [(0, row) for row in range(rows)]
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        load, row = heapq.heappop(loads)
        filled[row].append(i)
        if len(filled[row]) < packs:
            heapq.heappush(loads, (load + sizes[i], row))
    return filled


def row_lengths(steps, placed, multiple: int) -> list[int]:
    """How long each step's rows must be."""
    longest = [
        max(sum(sizes[i] for i in row) for row in rows) for sizes, rows in zip(steps, placed, strict=True)
    ]
    return [-(-length // multiple) * multiple for length in longest]


def few_lengths(needed: Sequence[int], config: BatchConfig, program: float) -> tuple[int, ...]:
    """Lengths such that each of `needed` fits in one: few, for each costs a `program`, and close, against padding."""
    distinct, counts = np.unique(needed, return_counts=True)
    *below, most = distinct.tolist()
    choices = [(*some, most) for more in range(MOST_LENGTHS) for some in combinations(below, more)]
    return min(choices, key=lambda some: config.cost(some, distinct, counts) + len(some) * program)


def fill(
    pieces: Sequence[Piece],
    rows: list[list[int]],
    length: int,
    packs: int,
    pad: int,
    targets: dict[str, Target],
) -> dict[str, np.ndarray]:
    """The batch: `rows` of indices of `pieces`, at most `packs` in each. Where it is 1, no array has an axis for them.
    Texts of a piece that are encoded separately are packs of their own."""
    B, L = len(rows), length
    batch = {name: np.zeros((B, L), np.int32) for name in ("tokens", "segments", "mask")}
    batch["tokens"][:] = pad
    texts = len(pieces[0].encoding.begins)
    packed = packs * texts > 1
    if packed:
        batch["packs"], batch["cls_positions"] = (
            np.zeros((B, L), np.int32),
            np.zeros((B, packs * texts), np.int32),
        )
    per_piece = (B, packs) if packs > 1 else (B,)
    for name, target in targets.items():
        shape = (B, L) if target.each_token else (*per_piece, *target.shape)
        batch[name] = np.zeros(shape, target.dtype)
    for row, indices in enumerate(rows):
        begin = 0
        for pack, i in enumerate(indices):
            piece = pieces[i]
            end = begin + len(piece)
            batch["tokens"][row, begin:end] = piece.encoding.ids
            batch["segments"][row, begin:end] = piece.encoding.segments
            batch["mask"][row, begin:end] = 1
            if packed:
                for text, first in enumerate(piece.encoding.begins):
                    batch["packs"][row, begin + first : end] = pack * texts + text + 1
                    batch["cls_positions"][row, pack * texts + text] = begin + first
            if PLACE in targets:
                batch[PLACE][(row, pack)[: len(per_piece)]] = i
            for name, value in piece.targets.items():
                where = (
                    (row, slice(begin, end)) if targets[name].each_token else (row, pack)[: len(per_piece)]
                )
                batch[name][where] = value
            begin = end
    return batch
