"""Texts that are not divided into words: their tokens are joined to words, and the tags of words to spans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_jax.core.terminal import BOLD, CYAN, GREEN, RED, RESET, YELLOW, is_coloured
from bert_jax.metrics.tagged_spans import OUTSIDE, continues_span, extract_spans, split_tag

# Marks that are a part of the word between two letters or digits, and between two digits.
MARKS_OF_WORDS, MARKS_OF_NUMBERS = tuple(".-'’_@&+"), tuple(",:/")


@dataclass(frozen=True)
class Span:
    """Words with one label: characters `start` to `end` of a text."""

    label: str
    text: str
    start: int  # in characters of the text
    end: int
    score: float  # the mean probability of the labels of its words


@dataclass(frozen=True)
class TokenLogits:
    """The tokens of a text that is not divided into words: their character spans, in order, and their logits."""

    text: str
    offsets: list[tuple[int, int]]
    logits: np.ndarray


def join_tokens(tokens: TokenLogits) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Join tokens to words: return their (start, end), and the logits of their first tokens.

    >>> join_tokens(TokenLogits("unlit 中文", [(0, 2), (2, 5), (6, 7), (7, 8)], np.zeros((4, 1))))[0]
    [(0, 5), (6, 7), (7, 8)]
    >>> join_tokens(TokenLogits("v 2.1.", [(0, 1), (2, 3), (3, 4), (4, 5), (5, 6)], np.zeros((5, 1))))[0]
    [(0, 1), (2, 5), (5, 6)]
    """
    words: list[tuple[int, int]] = []
    first = []
    for n, (start, end) in enumerate(tokens.offsets):
        if start == end:
            continue
        if words and start <= words[-1][1] and is_inside_word(tokens.text, start):
            words[-1] = words[-1][0], max(end, words[-1][1])
        else:
            words.append((start, end))
            first.append(n)
    return words, tokens.logits[np.array(first, int)]


def is_inside_word(text: str, index: int) -> bool:
    before, after = text[index - 1], text[index]
    if before.isalnum() and after.isalnum():
        return not (is_ideograph(before) or is_ideograph(after))
    return joins_neighbours(text, index) or joins_neighbours(text, index - 1)


def joins_neighbours(text: str, index: int) -> bool:
    """Return whether the mark at `index` joins its neighbours to one word, as in labelled lists of words.

    >>> [joins_neighbours(text, 1) for text in ("2.1", "x-y", "x,y", "1,0", "x. ", "x.")]
    [True, True, False, True, False, False]
    """
    before, mark, after = (text[n : n + 1] for n in (index - 1, index, index + 1))
    if mark in MARKS_OF_NUMBERS:
        return before.isdigit() and after.isdigit()
    return mark in MARKS_OF_WORDS and before.isalnum() and after.isalnum()


def is_ideograph(character: str) -> bool:
    # BERT's tokenizer makes each Han character a word.
    ranges = (("㐀", "鿿"), ("豈", "﫿"), ("𠀀", "\U0002fa1f"))
    return any(first <= character <= last for first, last in ranges)


def join_spans(
    text: str, offsets: Sequence[tuple[int, int]], tags: Sequence[str], likely: Sequence[float]
) -> list[Span]:
    """Join words at these places to the spans that their tags, with these probabilities, mark."""
    spans: list[tuple[str, int, int, list[float]]] = []
    before = OUTSIDE
    for (start, end), tag, score in zip(offsets, tags, likely, strict=True):
        if continues_span(before, tag):
            kind, first, _, scores = spans.pop()
            spans.append((kind, first, end, [*scores, score]))
        elif tag != OUTSIDE:
            spans.append((split_tag(tag)[1], start, end, [score]))
        before = tag
    return [Span(kind, text[a:b], a, b, sum(s) / len(s)) for kind, a, b, s in spans]


COLOURS = (CYAN, GREEN, YELLOW, RED)  # of the types of spans, in turn


def mark_spans(text: str | Sequence[str], prediction: Mapping[str, Any], types: Sequence[str]) -> str:
    """Return the text, in which each span is followed by its type; a text may be a list of words.

    A span from which the model abstains has a question mark.

    >>> spans = [{"label": "PER", "start": 0, "end": 3}, {"label": "LOC", "start": 7, "end": 11, "abstained": True}]
    >>> mark_spans("Ada in Rome.", {"spans": spans}, ["PER", "LOC"])
    'Ada [PER] in Rome [LOC?].'
    >>> mark_spans(("Ada", "Lovelace", "lived"), {"tags": ["B-PER", "I-PER", "O"]}, ["PER"])
    'Ada Lovelace [PER] lived'
    """
    spans = prediction.get("spans") or []
    if not isinstance(text, str):
        spans = list(spans_of_words(text, prediction["tags"]))
        text = " ".join(text)
    parts, end, coloured = [], 0, is_coloured()
    for span in spans:
        kind = f"[{span['label']}{'?' * bool(span.get('abstained'))}]"
        inside = text[span["start"] : span["end"]]
        if coloured:
            colour = COLOURS[types.index(span["label"]) % len(COLOURS)]
            inside, kind = f"{BOLD}{inside}{RESET}", f"{colour}{kind}{RESET}"
        parts += [text[end : span["start"]], f"{inside} {kind}"]
        end = span["end"]
    return "".join([*parts, text[end:]])


def spans_of_words(words: Sequence[str], tags: Sequence[str]):
    """Yield the spans of words that are joined by spaces."""
    for kind, first, last in extract_spans(tags):
        start = len(" ".join(words[:first])) + (first > 0)
        yield {"label": kind, "start": start, "end": start + len(" ".join(words[first:last]))}


def list_spans(words: Sequence[str], tags: Sequence[str]) -> str:
    """
    >>> list_spans(("Ada", "Lovelace", "lived"), ["B-PER", "I-PER", "O"])
    'PER: Ada Lovelace'
    """
    spans = (f"{kind}: {' '.join(words[a:b])}" for kind, a, b in extract_spans(tags))
    return "; ".join(spans) or "none"
