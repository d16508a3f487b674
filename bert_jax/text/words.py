"""Texts that come as words: which token stands for which word, in windows where there are many.

A word is known by its first token, as in BERT's named entities. Words are joined with spaces and cut as one text. The
space before the first one is what byte-level BPE needs to see it as a word; so the ids are those that `transformers`
gives with is_split_into_words (and add_prefix_space, which it demands there), but for words that are empty or spaces.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from bert_jax.errors import BertJaxError
from bert_jax.text.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True, slots=True)
class Windowed:
    encoding: Encoding
    words: list[
        tuple[int, int]
    ]  # (where its first token stands in `encoding.ids`, which word), of those decided here


def encode_words(
    tokenizer: Tokenizer, word_lists: Sequence[Sequence[str]], *, max_length: int, overlap: int
) -> list[list[Windowed]]:
    """Each list of words in as many windows of `max_length` tokens as it needs.

    A word is decided in one window, where it sees most on its poorer side. A word without any token, such as a control
    character, is decided nowhere.
    """
    texts = [joined(words, n) for n, words in enumerate(word_lists)]
    windows = tokenizer.windows(texts, max_length=max_length, overlap=overlap)
    return [assigned(*each, overlap) for each in zip(word_lists, windows, strict=True)]


def joined(words: Sequence[str], number: int) -> str:
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise BertJaxError(f"sequence {number} is {words!r:.60}, not a list of words")
    return "".join(f" {word}" for word in words)


def assigned(words: Sequence[str], windows: Sequence[Encoding], overlap: int) -> list[Windowed]:
    # Where each word's own space stands: byte-level BPE may make a token of that alone, which is then the word's first.
    spaces = [0, *accumulate(len(word) + 1 for word in words)][: len(words)]
    first: dict[int, int] = {}  # word -> its first token, counted over the whole text
    best: dict[int, tuple] = {}  # word -> (what it sees, window, position there)
    start = 0
    for n, window in enumerate(windows):
        span = window.spans[0]
        for position in span:
            word = bisect_right(spaces, window.offsets[position][0]) - 1
            token = start + position - span.start
            if first.setdefault(word, token) != token:
                continue
            sees = min(position, len(window.ids) - 1 - position)
            if word not in best or sees > best[word][0]:
                best[word] = (sees, n, position)
        start += len(span) - overlap
    found = [Windowed(window, []) for window in windows]
    for word, (_, n, position) in sorted(best.items()):
        found[n].words.append((position, word))
    return found
