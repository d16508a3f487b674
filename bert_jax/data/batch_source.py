"""The data of a run, as the loop reads them: a source of batches, which also says what it holds."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.typed_json import type_name
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.text.tokenizer import Batch, Tokenizer

Features = dict[str, tuple[tuple[int, ...], np.dtype]]
Fact = tuple[str, str]  # (name, description), a line of `bert-jax train --dry-run`


class BatchSource(Protocol):
    """The source of a run's batches; batch N is a function of N. Data of your own inherit from it."""

    tokenizer: Tokenizer
    rows_per_step: int  # rows per step, over all hosts

    def identity(self) -> dict[str, str]:
        """Return what the batches depend on beside the config: name for people -> value."""
        ...

    def row_length(self, step: int) -> int: ...

    def features(self, step: int) -> Features:
        """The features of the step's whole batch; no files are written for this."""
        ...

    def batches(self, start: int, stop: int, host_index: int, host_count: int) -> Iterator[Batch]: ...

    def validation_batches(self, length: int, host_index: int, host_count: int) -> Iterator[Batch]: ...

    def metrics(self, predicted: list[np.ndarray]) -> dict[str, float]:
        """Compute metrics from predictions on the batches of `validation_batches`, with the rows of all hosts."""
        ...

    def score_sums(self, predicted: list[np.ndarray]) -> ScoreSums | None:
        """Return what `metrics` are computed from, to compare two models; None: it is not known."""
        return None

    # What the data say of themselves; by default nothing.

    def facts(self) -> Iterator[Fact]:
        """Describe the data."""
        yield from ()

    @property
    def num_examples(self) -> int:
        """The number of labelled examples; 0 for text without labels."""
        return 0

    @property
    def has_validation(self) -> bool:
        return True

    def show_step(self, step: int, rows: int) -> str:
        """Show the first `rows` rows of a step as text."""
        raise BertJaxError(f"the data, {type_name(self)}, do not define `show_step`; see batch_source.py")

    def padding(self) -> float | None:
        """Return the share of padding among the tokens of all steps; None if it is unknown."""
        return None

    def describe_examples(self) -> str:
        """Describe the examples of a step; "" if its rows are its examples."""
        return ""

    def describe_passes(self, steps: int, tokens: float) -> str:
        """Say how often the data are seen in so many steps with so many tokens."""
        return ""
