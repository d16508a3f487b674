"""The work of one request: texts that wait to be tokenized, then for the device, then for their results to be read."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.inference.pipeline import ModelInputs, TextPipeline

Function = Callable[[list], Any]  # of texts, with a result for each; a TextPipeline is called step by step
CHARACTERS_PER_TOKEN, SPECIAL_TOKENS = 4, 2  # of an English text, before it is tokenized


@dataclass(eq=False)
class Work:
    function: Function
    texts: Sequence
    answer: asyncio.Future
    may_truncate: bool = True
    most_tokens: int = 1 << 30  # of a text, which is truncated to as many
    began: float = field(default_factory=time.perf_counter)
    tokenized: float = 0.0  # seconds
    computing_began: float = 0.0
    computed_at: float = 0.0
    cut: set[int] = field(default_factory=set)  # the indices of texts whose end is not even tokenized
    inputs: ModelInputs | None = None
    outputs: list = field(default_factory=list)  # of its rows
    started: int = 0  # rows; a large request is computed in several batches
    failed: bool = False

    @property
    def dropped(self) -> bool:
        """Whether it need not be computed: it failed, or nobody waits for it any more."""
        return self.failed or self.answer.done()

    @property
    def rows(self) -> Sequence:
        """What is computed: rows of tokens, or whole texts by a function without steps."""
        return self.inputs.rows if self.inputs else self.texts

    def count_tokens(self, row: int) -> int:
        return len(self.inputs.rows[row].input_ids) if self.inputs else 1

    @property
    def tokens(self) -> int:
        return sum(map(self.count_tokens, range(len(self.rows)))) if self.inputs else 0

    @property
    def estimated_tokens(self) -> int:
        """Return about how many tokens it has, before it is tokenized."""
        return sum(min(self.most_tokens, estimate_tokens(text)) for text in self.texts)

    @property
    def truncated(self) -> list[int]:
        """Return the indices of the texts that were truncated."""
        rows = self.inputs.first_rows if self.inputs else []
        return [n for n, row in enumerate(rows) if row.dropped or n in self.cut]

    @property
    def batch_key(self) -> tuple:
        """Return what the rows of a batch have in common."""
        if self.inputs is None:
            return (self.function,)
        assert isinstance(self.function, TextPipeline)
        shapes = {name: array.shape[1:] for name, array in (self.inputs.beside or {}).items()}
        return id(self.function.model), self.function.computation, *sorted(shapes.items())

    def read_results(self) -> list:
        """Return the results of its texts, once all rows are computed."""
        if not isinstance(self.function, TextPipeline) or self.inputs is None:
            return self.outputs
        return list(self.function.postprocess(self.inputs, self.outputs))


def estimate_tokens(text: str | tuple[str, ...] | list[int]) -> int:
    """Return about how many tokens a text, a pair or a list of token ids has.

    >>> estimate_tokens("12345678"), estimate_tokens(("1234", "1234")), estimate_tokens([101, 7, 102])
    (4, 4, 3)
    """
    if isinstance(text, list):
        return len(text)
    characters = len(text) if isinstance(text, str) else sum(map(len, text))
    return SPECIAL_TOKENS + characters // CHARACTERS_PER_TOKEN
