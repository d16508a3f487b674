"""A text, or a pair of texts, as the encoder reads it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bert_jax.core.errors import BertJaxError

Text = str | tuple[str, str]  # a text, or a pair of texts
EncodedSubwords = tuple[list[int], list[tuple[int, int]]]  # ids and their character spans


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


@dataclass(frozen=True)
class Template:
    """The special tokens around one or two texts: before the first, between the two, after the last.

    BERT writes [CLS] a [SEP] b [SEP] and gives segment 1 to b; RoBERTa writes <s> a </s></s> b </s> and has
    one segment.
    """

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    second: int

    def specials(self, pair: bool) -> int:
        return len(self.prefix) + len(self.suffix) + (len(self.middle) if pair else 0)

    def room(self, max_length: int, pair: bool) -> int:
        """Return how many of `max_length` tokens are left for a text, or for both texts of a pair."""
        specials, sides = self.specials(pair), "a pair" if pair else "a text"
        if max_length < specials + 1 + pair:
            raise BertJaxError(
                f"{max_length} tokens have no room for {sides} and its {specials} special tokens; allow "
                f"{specials + 1 + pair} or more"
            )
        return max_length - specials

    def fill(self, first: EncodedSubwords, second: EncodedSubwords | None, dropped: int = 0) -> Encoding:
        """Put the special tokens around the pieces.

        >>> Template((2,), (3,), (3,), second=1).fill(([7], [(0, 4)]), ([8, 9], [(0, 1), (2, 5)])).input_ids
        [2, 7, 3, 8, 9, 3]
        """
        before, after = len(self.prefix), len(self.suffix)
        input_ids, offsets = [*self.prefix, *first[0]], [(0, 0)] * before + first[1]
        spans: tuple[range, ...] = (range(before, len(input_ids)),)
        first_segment = len(input_ids) + after  # its number of tokens
        if second is not None:
            input_ids += self.middle
            first_segment = len(input_ids)
            spans += (range(len(input_ids), len(input_ids) + len(second[0])),)
            input_ids += second[0]
            offsets += [(0, 0)] * len(self.middle) + second[1]
        input_ids += self.suffix
        token_type_ids = [0] * first_segment + [self.second] * (len(input_ids) - first_segment)
        return Encoding(input_ids, token_type_ids, offsets + [(0, 0)] * after, dropped, spans)


def join_encodings(encodings: Sequence[Encoding]) -> Encoding:
    """Join encodings into one, in which each still starts with its own [CLS].

    >>> join_encodings([Encoding([5, 6], [0, 0], [(0, 0), (0, 3)]), Encoding([7], [0], [(0, 4)])]).text_starts
    (0, 2)
    """
    begins = [0]
    for encoding in encodings[:-1]:
        begins.append(begins[-1] + len(encoding.input_ids))
    return replace(
        encodings[0],
        input_ids=[i for encoding in encodings for i in encoding.input_ids],
        token_type_ids=[segment for encoding in encodings for segment in encoding.token_type_ids],
        offsets=[offset for encoding in encodings for offset in encoding.offsets],
        dropped=sum(encoding.dropped for encoding in encodings),
        spans=tuple(
            range(begin + span.start, begin + span.stop)
            for begin, encoding in zip(begins, encodings, strict=True)
            for span in encoding.spans
        ),
        text_starts=tuple(begins),
    )
