"""Texts that are too long for a model: they are truncated, which is counted and reported."""

from collections.abc import Iterable

from bert_jax.core.arguments import spell_setting
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.text.encoding import Encoding

WINDOWS_ADVICE = 'long_texts="windows" reads all of them'  # how a method of a model reads long texts whole


def windows_advice() -> str:
    """Return how the command or the function that runs reads long texts whole."""
    return spell_setting("--long-texts windows reads all of them", WINDOWS_ADVICE)


class TruncationCounter:
    def __init__(self, max_length: int):
        self.max_length = max_length
        self.texts = self.truncated = self.most = self.longest = 0

    def count(self, encodings: Iterable[Encoding]) -> None:
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

    def count(self, encodings: Iterable[Encoding]) -> None:
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
