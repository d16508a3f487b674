"""Make training pairs from documents without labels: a title with the passage below it, a passage with the next one,
and a made-up query (a few rare words of one sentence, as people type) with its passage."""

import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_jax.data.randomness import random_key, sample_indices
from bert_jax.search.passages import CutDocument, sentence_spans
from bert_jax.search.segment import DOCUMENTS, TEXTS, TITLES, write_documents
from bert_jax.search.segment_files import SegmentFiles

TITLE, NEIGHBOUR, QUERY = "titles", "neighbours", "queries"
SOURCES = (TITLE, NEIGHBOUR, QUERY)
MAX_ALIKE = 3  # documents that may share a title; a title of more says little about each
QUERY_WORDS = (2, 8)  # the fewest and the most words of a made-up query
COMMON = 0.1  # a word in more than this share of the passages is common
COUNTED = 1 << 16  # passages whose words are counted to find the common ones
WORD = re.compile(r"\w[\w'-]*")


@dataclass(frozen=True)
class Passages:
    """The passages of documents, in files, so that any number of them takes little memory."""

    titles: Sequence[str]  # of each document
    texts: Sequence[str]  # of each passage
    documents: np.ndarray  # the number of each passage's document

    @classmethod
    def write(cls, folder: Path, cuts: Iterable[CutDocument]) -> "Passages":
        if not write_documents(folder, cuts):
            return cls([], [], np.empty(0, np.int32))
        files = SegmentFiles(folder)
        return cls(files.texts(TITLES), files.texts(TEXTS), files.array(DOCUMENTS, np.int32, None))

    def positives(self) -> dict[str, np.ndarray]:
        """Return, for each source of pairs, the passages that may be the positive of a pair."""
        is_first = np.diff(self.documents, prepend=-1) > 0
        counts = Counter(self.titles)
        first = np.flatnonzero(is_first)
        titles = (self.titles[document] for document in self.documents[first])
        has_title = [bool(title.strip()) and counts[title] <= MAX_ALIKE for title in titles]
        return {
            TITLE: first[np.array(has_title, bool)],
            NEIGHBOUR: np.flatnonzero(~is_first),
            QUERY: np.arange(len(self.texts)),
        }

    def pairs(self, chosen: dict[str, np.ndarray]) -> Iterator[tuple[str, str, str]]:
        """Yield the source, the anchor and the positive of each pair; some of the chosen passages give none."""
        common = find_common_words(self.texts) if QUERY in chosen else set()
        for source, numbers in chosen.items():
            for number in numbers.tolist():
                text = self.texts[number]
                if source == TITLE:
                    anchor = self.titles[self.documents[number]]
                elif source == NEIGHBOUR:
                    anchor = self.texts[number - 1]
                else:
                    anchor = make_query(text, common)
                if anchor and anchor != text:
                    yield source, anchor, text


def draw_equally(positives: dict[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """Draw at most `most` passages at random, equally many for each source as far as it has them: neighbours outnumber
    titles, and teach less."""
    drawn: dict[str, np.ndarray] = {}
    fewest_first = sorted(positives, key=lambda source: len(positives[source]))
    for position, source in enumerate(fewest_first):
        numbers = positives[source]
        share = (most - sum(map(len, drawn.values()))) // (len(fewest_first) - position)
        drawn[source] = numbers[sample_indices(source, len(numbers), share)]
    return {source: drawn[source] for source in positives}


def find_common_words(texts: Sequence[str]) -> set[str]:
    """Return the words, in lower case, that many passages have."""
    some = sample_indices("words", len(texts), COUNTED)
    counts = Counter(word for number in some for word in {*WORD.findall(texts[number].lower())})
    return {word for word, count in counts.items() if count > max(COMMON * len(some), 1)}


def make_query(text: str, common: Collection[str]) -> str:
    """Draw one of the sentences and some of its words, in order and without common words. Return "" if no sentence has
    enough words.

    >>> make_query("Few know why cats land on their feet.", {"why", "on", "their"})
    'Few know cats land feet'
    """
    rng = random.Random(int(random_key("query", text)))
    sentences = [WORD.findall(text[start:end]) for start, end in sentence_spans(text)]
    rare = [[word for word in words if word.lower() not in common] for words in sentences]
    fitting = [words for words in rare if len(words) >= QUERY_WORDS[0]]
    if not fitting:
        return ""
    words = rng.choice(fitting)
    kept = sorted(rng.sample(range(len(words)), min(rng.randint(*QUERY_WORDS), len(words))))
    return " ".join(words[n] for n in kept)
