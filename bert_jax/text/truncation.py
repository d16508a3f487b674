"""Texts that are too long for a model: they are truncated, which is counted and reported, or read in windows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bert_jax.core.arguments import spell_setting
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.text.bi_encoder_pairs import encode_separately
from bert_jax.text.tokenizer import Encoding, Text, Tokenizer

LONG = ("truncate", "windows")
WINDOWS_ADVICE = 'long_texts="windows" reads all of them'  # how a method of a model reads long texts whole


def windows_advice() -> str:
    """Return how the command or the function that runs reads long texts whole."""
    return spell_setting("--long-texts windows reads all of them", WINDOWS_ADVICE)


@dataclass(frozen=True)
class EncodingOptions:
    """How texts are read: the maximum number of tokens, what to do with longer texts, the number of tokens that
    neighbouring windows share, and whether the texts of a pair are encoded separately."""

    max_length: int
    long_texts: str = "truncate"
    overlap: int = -1  # -1: the usual overlap for the kind of prediction
    separate_texts: bool = False

    def __post_init__(self):
        if not isinstance(self.long_texts, str) or self.long_texts not in LONG:
            raise BertJaxError(f'long_texts must be "truncate" or "windows", not "{self.long_texts!s:.60}"')
        if self.separate_texts and self.long_texts == "windows":
            raise BertJaxError(
                "a model that encodes the texts of a pair separately cannot read them in windows; leave "
                "long_texts=windows out, or train a model with --config.model.pair_encoding=cross_encoder"
            )

    def encode(self, tokenizer: Tokenizer, texts: Sequence[Text]) -> list[list[Encoding]]:
        """Encode each text, truncated, or in as many windows as it needs."""
        if self.separate_texts:
            return [[encoding] for encoding in encode_separately(tokenizer, texts, self.max_length)]
        if self.long_texts == "windows":
            overlap = self.max_length // 4 if self.overlap < 0 else self.overlap
            return tokenizer.windows(texts, max_length=self.max_length, overlap=overlap)
        return [[encoding] for encoding in tokenizer.encode(texts, max_length=self.max_length)]


class TruncationCounter:
    """Counts the texts that were truncated."""

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
        share, longer = (
            f"{self.truncated:,} of {self.texts:,} {what}",
            f"longer than {self.max_length} tokens",
        )
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
