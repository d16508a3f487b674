"""Cut long documents into passages of as many whole sentences as fit; the last ones are repeated in the next passage.
A sentence that does not fit is cut into lines, a line into words, and a word into tokens."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from sentencex import segment

from bert_jax.core.errors import BertJaxError
from bert_jax.core.grouping import group_by_size
from bert_jax.search.documents import Document
from bert_jax.text.tokenizer import Tokenizer

WINDOW = 1 << 20  # characters of the documents that are cut together
BLOCK = 1 << 16  # characters of a line that are cut into words at once
CHARACTERS = 16  # the most per token of a passage's room: a long string of odd characters may be one token
BATCH = 4096  # texts tokenized at once
MIN_ROOM = 8  # the fewest tokens that a passage must have room for
# sentencex 1.0.32 panics at spaces of two or three bytes (no-break, em).
ODD_SPACES = re.compile(r"[^\S\n ]")
LINE, WORD = re.compile(r"[^\n]+"), re.compile(r"\S{1,128}")

Span = tuple[int, int]
TextUnit = tuple[int, int, int]  # the start, the end and the tokens of a piece of text


class TokenCounter(Protocol):
    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""

    def find_cuts(self, text: str, most: int) -> list[int]:
        """Return where to cut a text so that no part has more than `most` tokens; the last item is its end."""


class WordCounter:
    """Count words instead of tokens, for an index without a model."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def find_cuts(self, text: str, most: int) -> list[int]:
        starts = [match.start() for match in WORD.finditer(text)]
        return [*starts[most::most], len(text)]


class TokenizerCounter:
    def __init__(self, tokenizer: Tokenizer, lower_case: bool):
        self.tokenizer, self.lower_case = tokenizer, lower_case

    def count(self, texts: Sequence[str]) -> list[int]:
        texts = [text.lower() for text in texts] if self.lower_case else texts
        return [
            len(ids)
            for start in range(0, len(texts), BATCH)
            for ids in self.tokenizer.ids(texts[start : start + BATCH])
        ]

    def find_cuts(self, text: str, most: int) -> list[int]:
        # The lower case of this letter alone has another length, and cuts are places in the text as given.
        text = text.replace("\u0130", "i").lower() if self.lower_case else text
        (encoding,) = self.tokenizer.encode([text])
        (tokens,) = encoding.spans
        return [*(encoding.offsets[i][0] for i in tokens[most::most]), len(text)]


@dataclass(frozen=True)
class CutDocument:
    """A document cut into passages."""

    id: str
    title: str
    hash: bytes
    spans: list[Span]  # in characters
    texts: list[str]


class PassageCutter:
    """Cut documents into passages of at most `room` tokens, with the title; neighbours share at most `overlap`."""

    def __init__(self, token_counter: TokenCounter, room: int, overlap: int):
        if room < MIN_ROOM:
            raise BertJaxError(
                f"passages have room for {room} tokens beside the prompt, and need at least {MIN_ROOM}; raise "
                "--passage-tokens"
            )
        self.token_counter, self.room, self.overlap = token_counter, room, overlap

    def __call__(self, documents: Iterable[Document]) -> Iterator[CutDocument]:
        for window in group_by_size(
            documents, WINDOW, lambda document: len(document.text) + len(document.title)
        ):
            spans_of_window = [sentence_spans(document.text) for document in window]
            texts = [
                document.text[start:end]
                for document, spans in zip(window, spans_of_window, strict=True)
                for start, end in spans
            ]
            counts = iter(self.token_counter.count(texts))
            # A title stands in each of its passages, so it gets half of their room at most.
            titles = [document.title[: CHARACTERS * (self.room // 2)] for document in window]
            tokens = self.token_counter.count(titles)
            for document, spans, title, of_title in zip(window, spans_of_window, titles, tokens, strict=True):
                sentences = [(start, end, next(counts)) for start, end in spans]
                yield self.cut_document(document, sentences, title, of_title)

    def cut_document(
        self, document: Document, sentences: list[TextUnit], title: str, title_tokens: int
    ) -> CutDocument:
        text = document.text
        if title_tokens > self.room // 2:
            title = title[: self.token_counter.find_cuts(title, self.room // 2)[0]]
            title_tokens = self.room // 2
        room = self.room - title_tokens
        spans = self.join_units(list(self.split_units(text, sentences, room)), room)
        return CutDocument(
            document.id, title, document.hash, spans, [text[start:end] for start, end in spans]
        )

    def join_units(self, units: list[TextUnit], room: int) -> list[Span]:
        """Join units into passages. A passage begins with the last units of the one before, up to `overlap` tokens."""
        spans: list[Span] = []
        first = total = 0
        for position, (_, end, tokens) in enumerate(units):
            if position > first and (total + tokens > room or end - units[first][0] > CHARACTERS * room):
                spans.append((units[first][0], units[position - 1][1]))
                back, total = position, 0
                most = min(self.overlap, room - tokens)
                while back - 1 > first:
                    start, _, more = units[back - 1]
                    repeated = units[position - 1][1] - start
                    if total + more > most or repeated > CHARACTERS * most or end - start > CHARACTERS * room:
                        break
                    back, total = back - 1, total + more
                first = back
            total += tokens
        return [*spans, (units[first][0], units[-1][1])] if units else []

    def split_units(self, text: str, spans: Iterable[TextUnit], room: int) -> Iterator[TextUnit]:
        """Yield the sentences that fit, and the parts of those that do not."""
        for start, end, tokens in spans:
            if self.fits(start, end, tokens, room):
                yield start, end, max(tokens, 1)
                continue
            for line, tokens in self.find_units(text, LINE, start, end):
                if self.fits(*line, tokens, room):
                    yield *line, max(tokens, 1)
                else:
                    yield from self.split_line(text, *line, room)

    def split_line(self, text: str, start: int, end: int, room: int) -> Iterator[TextUnit]:
        """Yield the words of a line, joined up to `overlap` tokens so that neighbouring passages can share them."""
        most = max(1, min(self.overlap, room))
        run: TextUnit | None = None
        for block in split_blocks(text, start, end):
            for word in self.split_words(text, *block, room):
                if run and self.fits(run[0], word[1], run[2] + word[2], most):
                    run = run[0], word[1], run[2] + word[2]
                else:
                    if run:
                        yield run
                    run = word
        if run:
            yield run

    def split_words(self, text: str, start: int, end: int, room: int) -> Iterator[TextUnit]:
        for word, tokens in self.find_units(text, WORD, start, end):
            if self.fits(*word, tokens, room):
                yield *word, max(tokens, 1)
                continue
            cuts = self.token_counter.find_cuts(text[slice(*word)], min(room // 2, CHARACTERS))
            spans = [(word[0] + a, word[0] + b) for a, b in pairwise([0, *cuts])]
            # A part of a word may have other tokens than it had in the word.
            for span, tokens in zip(
                spans, self.token_counter.count([text[slice(*span)] for span in spans]), strict=True
            ):
                yield *span, max(tokens, 1)

    def find_units(self, text: str, pattern: re.Pattern[str], start: int, end: int) -> list[tuple[Span, int]]:
        spans = [strip_span(text, *match.span()) for match in pattern.finditer(text, start, end)]
        spans = [(start, end) for start, end in spans if start < end]
        return list(zip(spans, self.token_counter.count([text[slice(*span)] for span in spans]), strict=True))

    @staticmethod
    def fits(start: int, end: int, tokens: int, room: int) -> bool:
        return tokens <= room and end - start <= CHARACTERS * room


def sentence_spans(text: str) -> list[Span]:
    plain = ODD_SPACES.sub(" ", text)
    ends, end = [], 0
    for sentence in segment("en", plain):  # it drops blank lines of long texts
        end = plain.index(sentence, end) + len(sentence)
        ends.append(end)
    spans = [strip_span(text, start, end) for start, end in pairwise([0, *ends, len(text)])]
    return [(start, end) for start, end in spans if start < end]


def strip_span(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, start + len(part.strip()))


def split_blocks(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield parts of at most BLOCK characters, each up to a space if possible."""
    while end - start > BLOCK:
        space = text.rfind(" ", start + 1, start + BLOCK)
        cut = space if space > 0 else start + BLOCK
        yield start, cut
        start = cut
    yield start, end
