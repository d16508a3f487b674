"""The words of a text, as keyword search counts them: in lower case, without English stop words, and, if the language
is known, as stems by Snowball's algorithms."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

# Accents, and vowels of Hebrew, Arabic and the scripts of India, which \w does not match. Those of Thai, which has no
# spaces between words, come later and still divide a text.
MARKS = "".join(mark for mark in map(chr, range(0x300, 0xE00)) if unicodedata.category(mark)[0] == "M")
WORD, PLAIN_WORD = re.compile(rf"\w[\w{MARKS}]+"), re.compile(r"\b\w\w+\b")  # the second is that of bm25s


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
    """Return the stem of each word; without a language, the words themselves."""
    if not language:
        return words
    import Stemmer

    return Stemmer.Stemmer(language, 0).stemWords(
        words
    )  # a new one each time: it must not be shared by threads
