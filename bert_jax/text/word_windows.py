"""Encode texts that come as lists of words: find the token that represents each word, in windows for long texts.

A word is represented by its first token, as in BERT's named-entity recognition. Words are joined with spaces and
tokenized as one text. Byte-level BPE needs the space before the first word to treat it as a word. So the ids are those
that `transformers` gives with is_split_into_words (and add_prefix_space, which it requires then), except for words that
are empty or consist of spaces.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from bert_jax.core.errors import BertJaxError
from bert_jax.text.encoding import Encoding
from bert_jax.text.tokenizer import Tokenizer

Place = TypeVar("Place", int, tuple[int, int])


@dataclass(frozen=True, slots=True)
class WordWindow:
    encoding: Encoding
    # (position of its first token, index of the word), for words decided in this window
    words: list[tuple[int, int]]


def encode_words(
    tokenizer: Tokenizer, word_lists: Sequence[Sequence[str]], *, max_length: int, overlap: int
) -> list[list[WordWindow]]:
    """Encode each list of words in as many windows of `max_length` tokens as it needs.

    Each word is predicted in one window only: the one that has the most context on the word's shorter side. A word
    without tokens, such as a control character, is in none.
    """
    texts = [words_to_text(words, n) for n, words in enumerate(word_lists)]
    windows = tokenizer.windows(texts, max_length=max_length, overlap=overlap)
    return [assign(*pair, overlap) for pair in zip(word_lists, windows, strict=True)]


def words_to_text(words: Sequence[str], number: int) -> str:
    listed = isinstance(words, Iterable) and not isinstance(words, str)
    if not (listed and all(isinstance(word, str) for word in words)):
        raise BertJaxError(f"sequence {number} is {words!r:.60}, not a list of words")
    return "".join(f" {word}" for word in words)


def assign(words: Sequence[str], windows: Sequence[Encoding], overlap: int) -> list[WordWindow]:
    # The offset of the space before each word: byte-level BPE may make it a token, which is then the word's first.
    spaces = [0, *accumulate(len(word) + 1 for word in words)][: len(words)]
    first: dict[int, int] = {}  # word -> index of its first token in the whole text
    indices: list[list[tuple[int, int]]] = []
    start = 0
    for window in windows:
        indices.append([])
        span = window.spans[0]
        for position in span:
            word = bisect_right(spaces, window.offsets[position][0]) - 1
            token = start + position - span.start
            if first.setdefault(word, token) == token:
                indices[-1].append((word, position))
        start += len(span) - overlap
    assigned = [WordWindow(window, []) for window in windows]
    for word, n, position in choose_central_windows(windows, indices):
        assigned[n].words.append((position, word))
    return assigned


def choose_central_windows(
    windows: Sequence[Encoding], indices: Iterable[Iterable[tuple[Place, int]]], count_itself: bool = False
) -> list[tuple[Place, int, int]]:
    """Choose for each place of a text the window with the most context on the place's shorter side.

    `indices` are, for each window, pairs (index in the text, position in the window). Return (index, number of the
    window, position in it). With `count_itself`, a token counts as part of its right context, which decides between two
    windows that differ by one token.
    """
    best: dict[Place, tuple[int, int, int]] = {}
    for n, (window, pairs) in enumerate(zip(windows, indices, strict=True)):
        last = len(window.input_ids) - (not count_itself)
        for index, position in pairs:
            shown = min(position, last - position)
            if index not in best or shown > best[index][0]:
                best[index] = shown, n, position
    return [(index, n, position) for index, (_, n, position) in sorted(best.items())]
