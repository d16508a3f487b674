"""Arrange labelled examples in rows: which examples of a step share a row, and how long the rows of a step are.

The examples of a step are given: a fixed number, in shuffled order. The arrangement only decides how much padding is
computed with them. There are three layouts:

padded      a row for each example; all rows of the run have the same length
bucketed    a row for each example, as long as the longest example of the step
packed      fewer rows, each with several examples that do not attend to one another
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np

from bert_jax.text.encoding import Encoding
from bert_jax.text.tokenizer import ENCODER_INPUTS, Batch

RowLayout = Literal["packed", "bucketed", "padded"]
MOST_LENGTHS = 3  # the limit of usual row lengths: each length is another program to compile
INDEX = "index"  # the name of a target: the index of a window within its step


@dataclass(frozen=True)
class Costs:
    """The costs of a platform, besides the matrix products of a step."""

    program: float  # the FLOPs that take about as long as compiling a program
    # The time of attention, divided by the time of its matrix products alone. It makes longer, packed rows cost more.
    attention: float = 1.0


# Measured on two cores: compiling a program took 4 to 5 s, for any size of model. In a training step of a 6-layer
# MiniLM, a token took 220 us, and 0.6 us more for each token of its row; by the matrix products alone it would be 0.1.
COSTS = {"cpu": Costs(5e11, 6.0)}
ACCELERATOR_COSTS = Costs(1e15)


@dataclass(frozen=True)
class BatchConfig:
    """How examples become the batches of a run."""

    layout: RowLayout
    examples: int  # per step
    steps: int
    seed: int
    width: int  # of the model
    layers: int  # of the model
    longest: int  # tokens of a row, if the layout is "padded"
    multiple: int = 8  # row lengths are multiples of it
    shards: int = 1  # the number of rows is a multiple of it
    costs: Costs = COSTS["cpu"]
    # The lengths of all windows from which several runs draw theirs: runs with the same lengths share their compiled
    # programs. (): the lengths of this run's windows.
    lengths: tuple[int, ...] = ()
    # (number of groups of `group_size` windows, share of the steps) of each set, if the windows are several sets, one
    # after the other. All windows of a step come from one set. (): one set.
    sets: tuple[tuple[int, float], ...] = ()
    group_size: int = 1  # this many consecutive windows always stay in the same step
    paired_classes: tuple[int, ...] = ()  # the class of each window; windows of one class come in pairs
    noun: str = "example"  # what messages call a window
    about: str = ""  # what the examples are, in words

    def program_cost(self, rows: int) -> float:
        """The cost of compiling a program, divided by the rows, in the unit of `cost`.

        The unit is 12 x width x layers FLOPs: 4 x width per layer and pass, for three passes (the backward pass counts
        as two)."""
        return self.costs.program / (12 * self.width * max(self.layers, 1) * rows)

    def cost(self, lengths: Sequence[int], needed: np.ndarray, counts: np.ndarray) -> float:
        """The cost of one row, summed over all steps: a layer's products with each token, and attention over the row.

        `counts[i]` steps need rows of `needed[i]` tokens, and get rows of the smallest of the sorted `lengths` that is
        enough."""
        length = np.asarray(lengths, np.float64)[np.searchsorted(lengths, needed)]
        return float((counts * length * (6 * self.width + self.costs.attention * length)).sum())


@dataclass(frozen=True, slots=True)
class EncodedWindow:
    """An encoded example, or a window of one.

    `targets` holds its values for the target arrays of the batch, by name: one value, or one for each token."""

    encoding: Encoding
    example: int  # its index in the list of examples
    targets: dict[str, Any]

    def __len__(self) -> int:
        return len(self.encoding.input_ids)


@dataclass(frozen=True)
class Target:
    """A target array of a batch: [B, P, *shape] for the windows of each row, or [B, L] if each token has a value."""

    dtype: str
    shape: tuple[int, ...] = ()
    each_token: bool = False


@dataclass(frozen=True)
class Arrangement:
    """The rows of each step, and the windows in each row."""

    rows: int  # per step
    max_windows: int  # the most windows in a row
    steps: list[list[list[int]]] = field(repr=False)  # step -> row -> indices of windows within the step
    lengths: list[int] = field(repr=False)  # step -> length of its rows


def arrange(
    steps: Sequence[Sequence[int]],
    config: BatchConfig,
    rows: int = 0,
    reference_steps: Sequence[Sequence[int]] = (),
) -> Arrangement:
    """Arrange steps, each given as the sizes of its windows, of which there are at most `config.examples`.

    The number and the lengths of rows are chosen for the `reference_steps`, by default the steps themselves. Runs whose
    steps are drawn from the same windows in another order share their compiled programs if they give the same ones.
    """
    reference_steps = reference_steps or steps
    rows = rows or (cheapest_rows(reference_steps, config) if config.layout == "packed" else config.examples)
    max_windows = max_windows_in_row(rows, config.examples)
    placed, needed = place_steps(steps, rows, max_windows, config.multiple)
    if config.layout == "padded":
        return Arrangement(rows, max_windows, placed, [config.longest] * len(steps))
    likely = needed
    if reference_steps != steps:
        _, likely = place_steps(reference_steps, rows, max_windows, config.multiple)
    usual = few_lengths(likely, config, config.program_cost(rows))
    few = np.array([*usual, max(needed)] if max(needed) > usual[-1] else usual)
    return Arrangement(rows, max_windows, placed, few[np.searchsorted(few, needed)].tolist())


def cheapest_rows(steps: Sequence[Sequence[int]], config: BatchConfig) -> int:
    """Choose the number of rows with the lowest cost, judged by at most 200 of the steps."""
    sample, batch = steps[:: len(steps) // 200 + 1], config.examples
    share = len(sample) / len(steps)
    halved = [batch >> n for n in range(batch.bit_length()) if batch % (1 << n) == 0]
    fitting = [rows for rows in halved if rows % config.shards == 0] or [batch]

    def price(rows: int) -> float:
        _, needed = place_steps(sample, rows, max_windows_in_row(rows, batch), config.multiple)
        program = share * config.program_cost(rows)
        lengths = few_lengths(needed, config, program)
        steps_cost = config.cost(lengths, *np.unique(needed, return_counts=True))
        return rows * (steps_cost + len(lengths) * program)

    return min(fitting, key=price)


def max_windows_in_row(rows: int, batch: int) -> int:
    """Allow a row twice its even share of windows: rows may differ, but the arrays stay small."""
    return min(batch, 2 * batch // rows) if rows < batch else 1


def place_steps(
    steps: Sequence[Sequence[int]], rows: int, max_windows: int, multiple: int
) -> tuple[list[list[list[int]]], list[int]]:
    """Return the rows of each step, and the length that they need, rounded up to a multiple of `multiple`."""
    placed = [distribute_to_rows(sizes, rows, max_windows) for sizes in steps]
    longest = [
        max(sum(sizes[i] for i in row) for row in of_step)
        for sizes, of_step in zip(steps, placed, strict=True)
    ]
    return placed, [-(-length // multiple) * multiple for length in longest]


def distribute_to_rows(sizes: Sequence[int], rows: int, max_windows: int) -> list[list[int]]:
    """Distribute the indices of `sizes` over rows of even load: longest first, each to the row with the fewest tokens.

    A row gets at most `max_windows` indices.

    >>> distribute_to_rows([5, 9, 4, 2], rows=2, max_windows=4)
    [[1, 3], [0, 2]]
    """
    filled: list[list[int]] = [[] for _ in range(rows)]
    loads = [(0, row) for row in range(rows)]
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        load, row = heapq.heappop(loads)
        filled[row].append(i)
        if len(filled[row]) < max_windows:
            heapq.heappush(loads, (load + sizes[i], row))
    return filled


def few_lengths(needed: Sequence[int], config: BatchConfig, program: float) -> tuple[int, ...]:
    """Choose row lengths that hold all `needed` lengths: few, as each costs a `program`, yet with little padding."""
    distinct, counts = np.unique(needed, return_counts=True)
    *below, most = distinct.tolist()
    choices = [(*some, most) for more in range(MOST_LENGTHS) for some in combinations(below, more)]
    return min(choices, key=lambda some: config.cost(some, distinct, counts) + len(some) * program)


def collate_rows(
    encoded_windows: Sequence[EncodedWindow],
    rows: list[list[int]],
    length: int,
    max_windows: int,
    pad: int,
    targets: dict[str, Target],
) -> Batch:
    """Build the arrays of a batch from `rows` of indices into `encoded_windows`.

    A row has at most `max_windows` windows; if that is 1, target arrays have no axis for windows. Texts of a window
    that are encoded separately get `segment_ids` of their own."""
    B, L = len(rows), length
    batch = {name: np.zeros((B, L), np.int32) for name in ENCODER_INPUTS}
    batch["input_ids"][:] = pad
    texts = len(encoded_windows[0].encoding.text_starts)
    packed = max_windows * texts > 1
    if packed:
        batch["segment_ids"] = np.zeros((B, L), np.int32)
        batch["cls_positions"] = np.zeros((B, max_windows * texts), np.int32)
    per_window = (B, max_windows) if max_windows > 1 else (B,)
    for name, target in targets.items():
        shape = (B, L) if target.each_token else (*per_window, *target.shape)
        batch[name] = np.zeros(shape, target.dtype)
    for row, indices in enumerate(rows):
        begin = 0
        for slot, i in enumerate(indices):
            window = encoded_windows[i]
            end = begin + len(window)
            batch["input_ids"][row, begin:end] = window.encoding.input_ids
            batch["token_type_ids"][row, begin:end] = window.encoding.token_type_ids
            batch["attention_mask"][row, begin:end] = 1
            if packed:
                for text, first in enumerate(window.encoding.text_starts):
                    batch["segment_ids"][row, begin + first : end] = slot * texts + text + 1
                    batch["cls_positions"][row, slot * texts + text] = begin + first
            index = (row, slot)[: len(per_window)]
            if INDEX in targets:
                batch[INDEX][index] = i
            for name, value in window.targets.items():
                batch[name][(row, slice(begin, end)) if targets[name].each_token else index] = value
            begin = end
    return batch


def window_starts(batch: Batch) -> Any:
    """Return where the windows of rows begin, [B, P]; `lengths` [B, P] says how long they are."""
    starts = batch["cls_positions"]  # of the texts of windows
    return starts[:, :: starts.shape[1] // batch["lengths"].shape[1]]
