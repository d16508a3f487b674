"""Find passages by their words, with the scores of bm25s.

bm25s stores final scores, which depend on the statistics of all documents, so it cannot add or remove documents. Here,
postings store how often a word, or its stem, occurs in a passage, and scores are computed at search time from the
passages that the index then has. The formula (Lucene's, k1 1.5, b 0.75) and the float types are the defaults of bm25s.
Words are in lower case, without English stop words, and, if the language is known, stems by Snowball's algorithms.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bert_jax.data.npy_writer import npy_writer
from bert_jax.search.postings import PostingFiles, Postings, TermScores, WeightedQuery, write_postings
from bert_jax.search.segment_files import SegmentFiles, StringArray, text_writer

K1, B = 1.5, 0.75
WINDOW = 4096  # texts whose words are in memory at once
WORDS, LENGTHS = "words", "lengths.npy"
FILES = PostingFiles("postings.starts.npy", "postings.npy", "frequencies.npy", np.uint16)
MOST = np.iinfo(
    np.uint16
).max  # a larger count, for which the largest passage has room, hardly changes a score
# Accents, and vowels of Hebrew, Arabic and the scripts of India, which \w does not match. Those of Thai, which has no
# spaces between words, come later and still divide a text.
MARKS = "".join(mark for mark in map(chr, range(0x300, 0xE00)) if unicodedata.category(mark)[0] == "M")
WORD, PLAIN_WORD = re.compile(rf"\w[\w{MARKS}]+"), re.compile(r"\b\w\w+\b")  # the second is that of bm25s


def build_postings(folder: Path, texts: Sequence[str], language: str | None) -> None:
    """Write the postings of any number of texts: sort each window of texts by word, then put the windows together."""
    numbers: dict[str, int] = {}  # of the stems
    counts: list[np.ndarray] = []  # of each window: the number of postings of each word
    with (
        TemporaryDirectory(dir=folder, prefix=".") as scratch,
        npy_writer(folder / LENGTHS, np.int32) as lengths,
    ):
        for start in range(0, len(texts), WINDOW):
            ids, words_of_window = number_words(texts[start : start + WINDOW], language)
            stems = stem_words(words_of_window, language)
            of_window = np.array([numbers.setdefault(stem, len(numbers)) for stem in stems], np.int64)
            sizes = np.array([len(text) for text in ids])
            words = of_window[np.concatenate([np.array(text, np.int64) for text in ids])]
            pairs, frequencies = np.unique(
                words << 32 | np.arange(len(ids)).repeat(sizes), return_counts=True
            )
            np.savez(
                Path(scratch, str(len(counts))),
                words=pairs >> 32, passages=(pairs & 0xFFFFFFFF) + start,
                frequencies=np.minimum(frequencies, MOST),
            )  # fmt: skip
            counts.append(np.bincount(pairs >> 32, minlength=len(numbers)))
            lengths.append(sizes)
        order = sorted(numbers)  # the words in the order of strings
        with text_writer(folder, WORDS) as vocabulary:
            vocabulary.append(order)
        position = np.empty(len(order), np.int64)
        position[[numbers[word] for word in order]] = np.arange(len(order))
        total = np.zeros(len(order), np.int64)
        for counts_of_window in counts:
            total[position[: len(counts_of_window)]] += counts_of_window
        windows = (np.load(Path(scratch, f"{number}.npz")) for number in range(len(counts)))
        write_postings(
            folder, FILES, total,
            ((position[window["words"]], window["passages"], window["frequencies"]) for window in windows),
        )  # fmt: skip


@dataclass(frozen=True)
class WordPostings:
    """The postings of each word of a segment."""

    words: StringArray  # sorted
    postings: Postings
    lengths: np.ndarray  # words in each passage

    def find_passages(self, word: str, live: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the passages with the word that are not removed, and how often it occurs in each."""
        passages, frequencies = self.postings.find(self.words.find(word), live)
        if ((frequencies < 1) | (frequencies > self.lengths[passages])).any():
            raise self.postings.files.damage_error(FILES.numbers)
        return passages, frequencies


def open_postings(files: SegmentFiles, passages: int) -> WordPostings:
    words = files.texts(WORDS)
    lengths = files.array(LENGTHS, np.int32, passages)
    return WordPostings(words, Postings.open(files, FILES, len(words), passages), lengths)


class KeywordSearch:
    """Keyword search in segments, each given as (postings, which passages are not removed; None: all), whose words are
    stems of a language, or whole words if it is None."""

    def __init__(self, segments: Sequence[tuple[WordPostings, np.ndarray | None]], language: str | None):
        self.segments, self.language = segments, language
        kept = [
            (len(postings.lengths), int(postings.lengths.sum(dtype=np.int64)))
            if live is None
            else (int(live.sum()), int(postings.lengths[live].sum(dtype=np.int64)))
            for postings, live in segments
        ]
        self.count, length = sum(count for count, _ in kept), sum(length for _, length in kept)
        self.mean_length = length / max(self.count, 1)

    def weight_query(self, query: str) -> WeightedQuery:
        words = query_words(query, self.language)
        return WeightedQuery(words, {stem: self.score_stem(stem) for _, stem in words})

    def score_stem(self, stem: str) -> TermScores:
        of_stem = [postings.find_passages(stem, live) for postings, live in self.segments]
        having = sum(len(passages) for passages, _ in of_stem)
        rarity = np.float32(math.log(1 + (self.count - having + 0.5) / (having + 0.5)))
        parts = []
        for (passages, frequencies), (postings, _) in zip(of_stem, self.segments, strict=True):
            lengths, counts = postings.lengths[passages], frequencies.astype(np.float32)
            weights = (
                counts / (K1 * ((1 - B) + B * lengths / self.mean_length) + counts) if len(counts) else counts
            )
            parts.append((passages, (rarity * weights).astype(np.float32)))
        return parts


def word_pattern(language: str | None) -> re.Pattern[str]:
    return WORD if language else PLAIN_WORD


def number_words(texts: Sequence[str], language: str | None) -> tuple[list[list[int]], list[str]]:
    """Return each text as a list of word numbers, and the word of each number."""
    import bm25s

    pattern = word_pattern(language).pattern
    tokenized = bm25s.tokenize(list(texts), token_pattern=pattern, show_progress=False)
    return tokenized.ids, list(tokenized.vocab)


def split_words(texts: Sequence[str], language: str | None) -> list[list[str]]:
    """
    >>> split_words(["The cat and the other CATS"], "english")
    [['cat', 'other', 'cat']]
    """
    ids, words = number_words(texts, language)
    stems = stem_words(words, language)
    return [[stems[number] for number in of_text] for of_text in ids]


@lru_cache(maxsize=1024)
def query_words(query: str, language: str | None) -> tuple[tuple[str, str], ...]:
    """Return the words of a query, each with its stem.

    >>> query_words("The cat and the other CATS", "english")
    (('cat', 'cat'), ('other', 'other'), ('cats', 'cat'))
    """
    (ids,), words = number_words([query], language)
    stems = stem_words(words, language)
    return tuple((words[number], stems[number]) for number in ids)


class WordFinder:
    """Finds the words of a query in texts, whatever their endings."""

    def __init__(self, query: str, language: str | None):
        self.language, self.wanted = language, frozenset(stem for _, stem in query_words(query, language))

    def find(self, text: str) -> list[tuple[re.Match[str], str]]:
        """Return where words of the query are in a text, and the stem of each.

        >>> [(match[0], stem) for match, stem in WordFinder("landing", "english").find("It lands. They Land.")]
        [('lands', 'land'), ('Land', 'land')]
        """
        matches = [*word_pattern(self.language).finditer(text)]
        stems = stem_words([match[0].lower() for match in matches], self.language)
        return [(match, stem) for match, stem in zip(matches, stems, strict=True) if stem in self.wanted]


def stem_words(words: list[str], language: str | None) -> list[str]:
    if not language:
        return words
    import Stemmer

    # A new one each time: it must not be shared by threads.
    return Stemmer.Stemmer(language, 0).stemWords(words)
