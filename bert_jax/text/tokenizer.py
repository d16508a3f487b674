"""What every tokenizer of the package offers; each kind has its own file beside this one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Text = str | tuple[str, str]  # a text, or a pair of texts


@dataclass(frozen=True)
class Special:
    """Ids of the special tokens, under BERT's names (RoBERTa's <s> is `cls`, its </s> is `sep`)."""

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
    """One text or pair as the encoder sees it, [CLS] and [SEP] included.

    `offsets` are the half-open character spans of each id in its own text, (0, 0) for special tokens;
    `segments` are what the segment embedding sees (RoBERTa gives 0 to both texts of a pair); `spans` are
    the ranges of `ids` that each text takes; `dropped` counts what `max_length` cut away. `begins` are the places
    in `ids` where a text begins that is encoded separately.
    """

    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    dropped: int = 0
    spans: tuple[range, ...] = ()
    begins: tuple[int, ...] = (0,)


class Tokenizer(Protocol):
    special: Special
    size: int  # highest id + 1, what an embedding table must at least hold

    @property
    def fingerprint(self) -> str:
        """Changes when any text could get other ids."""
        ...

    def encode(self, texts: Sequence[Text], *, max_length: int | None = None) -> list[Encoding]:
        """Texts or pairs with their special tokens; of a pair, the longer side is cut first."""
        ...

    def __call__(
        self, texts, *, max_length: int | None = None, length: int | None = None
    ) -> dict[str, np.ndarray]:
        """The arrays that a model reads: of one text or pair [L], of a list of them [B, L]."""
        ...

    def windows(self, texts: Sequence[Text], *, max_length: int, overlap: int) -> list[list[Encoding]]:
        """Each text in as many encodings of `max_length` as it needs; neighbours share `overlap` tokens.

        Of a pair the second text is windowed, and the first one comes whole before each window.
        """
        ...

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids alone, without special tokens: the fast path that prepares a corpus."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text for ids, special tokens left out."""
        ...

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's entry for each id, special tokens included."""
        ...

    def save(self, directory) -> None:
        """Writes the files from which this package and `transformers` open the same tokenizer."""
        ...


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How much of each side of a pair stays when the longer one is cut until both fit; of one text, `second` is 0.

    >>> longest_first(10, 3, 8), longest_first(10, 9, 7), longest_first(10, 0, 7)
    ((5, 3), (4, 3), (7, 0))
    """
    if first + second <= room:
        return first, second
    short = min(first, second, room // 2)
    return (short, room - short) if first <= second else (room - short, short)
