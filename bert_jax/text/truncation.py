"""Texts that are too long for a model: they are truncated, which is counted and reported, or read in windows; and the
two texts of a pair that a bi-encoder reads separately."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bert_jax.core.arguments import spell_setting
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize

if TYPE_CHECKING:
    from bert_jax.text.tokenizer import Encoding, Text, Tokenizer

LONG = ("truncate", "windows")
WINDOWS_ADVICE = 'long_texts="windows" reads all of them'  # how a method of a model reads long texts whole


def windows_advice() -> str:
    """Return how the command or the function that runs reads long texts whole."""
    return spell_setting("--long-texts windows reads all of them", WINDOWS_ADVICE)


@dataclass(frozen=True)
class EncodingOptions:
    """How texts are read: the maximum number of tokens, what to do with longer texts, the number of tokens that
    neighbouring windows share, whether the texts of a pair are encoded separately, and which of them is truncated."""

    max_length: int
    long_texts: str = "truncate"
    overlap: int = -1  # -1: the usual overlap for the kind of prediction
    separate_texts: bool = False
    truncation: str = "longest_first"  # of pairs: a name in TRUNCATIONS

    def __post_init__(self):
        if not isinstance(self.long_texts, str) or self.long_texts not in LONG:
            raise BertJaxError(f'long_texts must be "truncate" or "windows", not "{self.long_texts!s:.60}"')
        if self.separate_texts and self.long_texts == "windows":
            raise BertJaxError(
                "a model that encodes the texts of a pair separately cannot read them in windows; leave "
                "long_texts=windows out, or train a model with --config.model.pair_encoding=cross_encoder"
            )

    def encode(self, tokenizer: "Tokenizer", texts: "Sequence[Text]") -> "list[list[Encoding]]":
        """Encode each text, truncated, or in as many windows as it needs."""
        if self.separate_texts:
            return [[encoding] for encoding in encode_separately(tokenizer, texts, self.max_length)]
        if self.long_texts == "windows":
            overlap = self.max_length // 4 if self.overlap < 0 else self.overlap
            return tokenizer.windows(texts, max_length=self.max_length, overlap=overlap)
        encodings = tokenizer.encode(texts, max_length=self.max_length, truncation=self.truncation)
        return [[encoding] for encoding in encodings]


class TruncationCounter:
    def __init__(self, max_length: int):
        self.max_length = max_length
        self.texts = self.truncated = self.most = self.longest = 0

    def count(self, encodings: "Iterable[Encoding]") -> None:
        """Count texts; each encoding is that of a whole text, or the first of its windows."""
        for encoding in encodings:
            self.truncated += encoding.dropped > 0
            if encoding.dropped > self.most:
                self.most, self.longest = encoding.dropped, self.texts
            self.texts += 1

    def add(self, texts: int, truncated: int, most: int, longest: int) -> None:
        """Add the counts of the texts that follow those counted so far."""
        if most > self.most:
            self.most, self.longest = most, self.texts + longest
        self.texts += texts
        self.truncated += truncated

    def notice(self, advice: str = "", what: str = "texts") -> str:
        """Return a notice for users; "" if nothing was truncated."""
        if not self.truncated:
            return ""
        share = f"{self.truncated:,} of {self.texts:,} {what}"
        longer = f"longer than {self.max_length} tokens"
        number, by = f"(number {self.longest + 1:,})", f"by {pluralize(self.most, 'token')}"
        if self.truncated == 1:
            notice = f"{share} {number} is {longer} and was truncated {by}"
        else:
            notice = f"{share} are {longer} and were truncated, the longest {number} {by}"
        return f"{notice}{'; ' * bool(advice)}{advice}"


class TruncationWarner(TruncationCounter):
    """Warns the first time that some of the texts were truncated."""

    def __init__(self, max_length: int, advice: str = ""):
        super().__init__(max_length)
        self.advice = advice

    def count(self, encodings: "Iterable[Encoding]") -> None:
        before = self.truncated
        super().count(encodings)
        if self.truncated and not before:
            warn_caller(self.notice(self.advice))


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


def only_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the lengths of both texts of a pair after the first is truncated until both fit in `room`.

    >>> only_first(10, 3, 8), only_first(2, 3, 8)
    ((5, 3), (2, 3))
    """
    if second >= room:
        raise BertJaxError(
            f"the second text of a pair has {second} tokens, and {room - 1} have room; shorten it"
        )
    return min(first, room - second), second


TRUNCATIONS = {"longest_first": longest_first, "only_first": only_first}


def encode_separately(tokenizer: "Tokenizer", pairs: "Sequence[Text]", max_length: int) -> "list[Encoding]":
    """Encode pairs with at most `max_length` tokens each; the longer text is truncated first."""
    single = next((text for text in pairs if isinstance(text, str)), None)
    if single is not None:
        raise BertJaxError(f'this model takes pairs of texts, but "{single[:40]}" is a single text')
    firsts, seconds = (tokenizer.encode([pair[n] for pair in pairs]) for n in range(2))
    joined = []
    for pair, first, second in zip(pairs, firsts, seconds, strict=True):
        encodings = [first, second]
        lengths = len(first.input_ids), len(second.input_ids)
        if sum(lengths) > max_length:
            keep = zip(pair, longest_first(*lengths, max_length), strict=True)
            encodings = [tokenizer.encode([text], max_length=most)[0] for text, most in keep]
        joined.append(join_encodings(encodings))
    return joined


def join_encodings(encodings: "Sequence[Encoding]") -> "Encoding":
    """Join encodings into one, in which each still starts with its own [CLS].

    >>> from bert_jax.text.tokenizer import Encoding
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
        offsets=[place for encoding in encodings for place in encoding.offsets],
        dropped=sum(encoding.dropped for encoding in encodings),
        spans=tuple(
            range(begin + span.start, begin + span.stop)
            for begin, encoding in zip(begins, encodings, strict=True)
            for span in encoding.spans
        ),
        text_starts=tuple(begins),
    )
