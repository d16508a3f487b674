"""Tell the language of documents by its most frequent function words, to choose their stemmer."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from bert_jax.core.grouping import group_by_size
from bert_jax.data.randomness import sample_indices
from bert_jax.search.function_words import SIMILAR, STEMMED
from bert_jax.search.words import MARKS

AUTO, NONE = "auto", "none"
LANGUAGES = tuple(STEMMED)
SAMPLE = 500  # texts that are looked at
GROUP = 200  # words of neighbouring texts that are judged together
# The fewest different function words of a group, and the share of all of them: prose has twice as many, code and tables
# half as many.
MIN_DISTINCT, MIN_SHARE = 3, 0.1
MAJORITY = 2 / 3  # of the words must be in groups of one language
WORD = re.compile(rf"[^\W\d_](?:[^\W\d_]|[{MARKS}])*")
LANGUAGES_BY_WORD: dict[str, list[str]] = {}
for name, words in (STEMMED | SIMILAR).items():
    for word in set(words.split()):
        LANGUAGES_BY_WORD.setdefault(word, []).append(name)


def detect_language(texts: Sequence[str]) -> str | None:
    """Return the language of most texts, by the name of its stemmer; None if it is unknown or has no stemmer.

    >>> detect_language(["They are born free, and they have the same rights."])
    'english'
    >>> detect_language(["for (int i = 0; i < n; i++) sum += a[i];"])
    """
    counts = Counter[str | None]()
    sample = sample_indices("language", len(texts), SAMPLE)
    words = filter(None, (WORD.findall(texts[n].lower()) for n in sample))
    for texts_words in group_by_size(words, GROUP, len):
        group = list(chain.from_iterable(texts_words))
        counts[closest_language(group)] += len(group)
    for language, count in counts.most_common(1):
        if language in STEMMED and count > MAJORITY * counts.total():
            return language
    return None


def closest_language(group: list[str]) -> str | None:
    """Return the language with the most function words in a group; None if it has few, or two have as many."""
    hits = Counter(language for word in group for language in LANGUAGES_BY_WORD.get(word, ()))
    (language, most), (_, second) = [*hits.most_common(2), ("", 0), ("", 0)][:2]
    distinct = sum(language in LANGUAGES_BY_WORD.get(word, ()) for word in set(group))
    is_prose = distinct >= MIN_DISTINCT and most >= MIN_SHARE * len(group)
    return language if is_prose and most > second else None
