"""What all tokenizers share: they put special tokens around subwords, and count the tokens that do not fit."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.surrogates import replace_surrogates
from bert_jax.core.terminal import pluralize
from bert_jax.core.typed_json import type_name
from bert_jax.text import collate
from bert_jax.text.tokenizer import Encoding, Special, Text, longest_first

EncodedSubwords = tuple[list[int], list[tuple[int, int]]]  # ids and their character spans


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

    def fill(self, first: EncodedSubwords, second: EncodedSubwords | None, dropped: int = 0) -> Encoding:
        """Put the special tokens around the pieces.

        >>> Template((2,), (3,), (3,), second=1).fill(([7], [(0, 4)]), ([8, 9], [(0, 1), (2, 5)])).input_ids
        [2, 7, 3, 8, 9, 3]
        """
        before, after = len(self.prefix), len(self.suffix)
        input_ids, offsets = [*self.prefix, *first[0]], [(0, 0)] * before + first[1]
        spans: tuple[range, ...] = (range(before, len(input_ids)),)
        token_type_ids = [0] * len(input_ids)
        if second is not None:
            input_ids += self.middle
            token_type_ids += [0] * len(self.middle)
            spans += (range(len(input_ids), len(input_ids) + len(second[0])),)
            input_ids += second[0]
            offsets += [(0, 0)] * len(self.middle) + second[1]
            token_type_ids += [self.second] * (len(second[0]) + after)
        else:
            token_type_ids += [0] * after
        return Encoding(
            [*input_ids, *self.suffix], token_type_ids, offsets + [(0, 0)] * after, dropped, spans
        )


class SubwordTokenizer(ABC):
    """A tokenizer with a template of special tokens; subclasses define how a text becomes pieces."""

    special: Special
    template: Template
    size: int

    __call__ = collate.collate_texts
    pad = collate.pad_encodings
    batches = collate.iterate_batches

    def __repr__(self) -> str:
        t = self.template
        before, between, after = (" ".join(self.tokens(part)) for part in (t.prefix, t.middle, t.suffix))
        return f"<{type(self).__name__}: {self.size:,} entries, pairs as {before} a {between} b {after}>"

    @abstractmethod
    def tokens(self, ids: Sequence[int]) -> list[str]: ...

    @abstractmethod
    def _pieces(self, texts: list[str]) -> list[EncodedSubwords]: ...

    def encode(self, texts: Sequence[Text], *, max_length: int | None = None) -> list[Encoding]:
        if max_length is not None:
            check_number(max_length, "max_length", is_whole=True)
        encodings = []
        for first, second in self._sides(texts):
            dropped = 0
            if max_length is not None:
                have = len(first[0]), len(second[0]) if second else 0
                keep = longest_first(*have, self._room(max_length, second is not None))
                dropped = sum(have) - sum(keep)
                if dropped:
                    first = first[0][: keep[0]], first[1][: keep[0]]
                    second = second and (second[0][: keep[1]], second[1][: keep[1]])
            encodings.append(self.template.fill(first, second, dropped))
        return encodings

    def windows(self, texts: Sequence[Text], *, max_length: int, overlap: int) -> list[list[Encoding]]:
        check_number(max_length, "max_length", is_whole=True)
        check_number(overlap, "overlap", is_whole=True, allowed=Range(0))
        windows = []
        for text, (first, second) in zip(texts, self._sides(texts), strict=True):
            pair = second is not None
            ids, offsets = first if second is None else second
            room = self._room(max_length, pair) - (len(first[0]) if pair else 0)
            if room <= overlap:
                before = f' after "{text[0][:40]}"' if pair else ""
                raise BertJaxError(
                    f"a window of {max_length} tokens has room for only "
                    f"{pluralize(max(room, 0), 'token')}{before}, but neighbouring windows must share {overlap}; "
                    f"{'shorten the first text' if pair else 'lower the overlap'}"
                )
            starts = range(0, max(len(ids) - overlap, 1), room - overlap)
            cuts = [(ids[s : s + room], offsets[s : s + room]) for s in starts]
            fill = self.template.fill
            windows.append([fill(first, cut) if pair else fill(cut, None) for cut in cuts])
        return windows

    def _room(self, max_length: int, pair: bool) -> int:
        specials, sides = self.template.specials(pair), "a pair" if pair else "a text"
        if max_length < specials + 1 + pair:
            raise BertJaxError(
                f"{max_length} tokens have no room for {sides} and its {specials} special tokens; allow "
                f"{specials + 1 + pair} or more"
            )
        return max_length - specials

    def _sides(self, texts: Sequence[Text]) -> list[tuple[EncodedSubwords, EncodedSubwords | None]]:
        check_listed(texts)
        for place, text in enumerate(texts):
            if not isinstance(text, str) and not (isinstance(text, tuple | list) and len(text) == 2):
                raise BertJaxError(f"text {place} is {type_name(text)}, not a text or a pair: {text!r:.60}")
        flat = [side for text in texts for side in ((text,) if isinstance(text, str) else text)]
        pieces = iter(self._pieces(sanitize_texts(flat)))
        return [(next(pieces), None if isinstance(text, str) else next(pieces)) for text in texts]


def check_listed(texts) -> None:
    if isinstance(texts, str):
        raise BertJaxError("expected a list of texts, got one string; write [text]")
    if not isinstance(texts, Sequence) or isinstance(texts, bytes | bytearray):
        raise BertJaxError(f"expected a list of texts, got {type_name(texts)}")


def sanitize_texts(texts: Sequence[str]) -> list[str]:
    """Replace lone surrogates, which a UTF-8 library refuses, with U+FFFD, one for one, so offsets stay valid."""
    check_listed(texts)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise BertJaxError(f"text {place} is {type_name(text)}, not a string: {text!r:.60}")
    return [replace_surrogates(text) for text in texts]
