"""The interface of all tokenizers of the package; each kind has its own file in this folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Text = str | tuple[str, str]  # a text, or a pair of texts
ENCODER_INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # the arrays [B, L] of every batch


@dataclass(frozen=True)
class Special:
    """The ids of the special tokens, by BERT's names (RoBERTa's <s> is `cls`, its </s> is `sep`)."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    @property
    def all(self) -> tuple[int, ...]:
        return (self.pad, self.unk, self.cls, self.sep, self.mask)


@dataclass(frozen=True, slots=True)
class Encoding:
    """One text or pair as the encoder reads it, including [CLS] and [SEP].

    `token_type_ids` say to which text a token belongs (RoBERTa gives 0 to both texts of a pair). `offsets` are the
    half-open character span of each id in its own text, (0, 0) for special tokens. `dropped` is the number of tokens
    that were cut off to fit `max_length`. `spans` are the ranges of `input_ids` that hold the tokens of each text.
    `text_starts` are the indices in `input_ids` at which a separately encoded text begins.
    """

    input_ids: list[int]
    token_type_ids: list[int]
    offsets: list[tuple[int, int]]
    dropped: int = 0
    spans: tuple[range, ...] = ()
    text_starts: tuple[int, ...] = (0,)


class Tokenizer(Protocol):
    special: Special
    size: int  # highest id + 1, the least number of rows of an embedding table

    @property
    def fingerprint(self) -> str:
        """A hash that changes if any text could get other ids."""
        ...

    def encode(self, texts: Sequence[Text], *, max_length: int | None = None) -> list[Encoding]:
        """Encode texts or pairs with their special tokens; in a pair, the longer text is truncated first."""
        ...

    def __call__(
        self, texts, *, max_length: int | None = None, length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Return the arrays that a model reads: [L] for one text or pair, [B, L] for a list."""
        ...

    def windows(self, texts: Sequence[Text], *, max_length: int, overlap: int) -> list[list[Encoding]]:
        """Encode each text in as many windows of `max_length` tokens as it needs; neighbours share `overlap` tokens.

        In a pair, the second text is divided into windows, and the whole first text comes before each of them.
        """
        ...

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return only the ids of texts, without special tokens; this is the fast path for preparing a corpus."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens."""
        ...

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary's entry for each id, special tokens included."""
        ...

    def save(self, directory) -> None:
        """Write the files from which this package and `transformers` open the same tokenizer."""
        ...


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the lengths of both texts of a pair after the longer one is truncated until both fit in `room`.

    For a single text, `second` is 0.

    >>> longest_first(10, 3, 8), longest_first(10, 9, 7), longest_first(10, 0, 7)
    ((5, 3), (4, 3), (7, 0))
    """
    if first + second <= room:
        return first, second
    short = min(first, second, room // 2)
    return (short, room - short) if first <= second else (room - short, short)
