"""Make training pairs from documents without labels: a title and the passage below it, a passage and the next one, a
sentence and the rest of its passage, or a made-up query (a few words of a sentence, as people type) and its passage."""

import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bert_jax.data.randomness import key_of
from bert_jax.search.passages import Cut, sentence_spans

MOST_ALIKE = 3  # documents that may share a title; a title of more says little about each and is not used
WORDS = (4, 40)  # the fewest and the most words of a sentence that is used as a query
ASKED = (2, 8)  # the fewest and the most words of a made-up query
COMMON = 0.1  # a word in more than this share of the passages is not used in made-up queries
WORD = re.compile(r"\w[\w'-]*")
SOURCES = {
    "title": "titles",
    "sentence": "sentences",
    "neighbour": "neighbours",
    "words": "made-up queries",
}  # sources of pairs, and their plurals


@dataclass(frozen=True)
class Passage:
    id: str
    document: str
    title: str
    text: str


@dataclass(frozen=True)
class Pair:
    anchor: str
    positive: str
    document: str
    passage: str  # the id of the passage that should be found
    source: str  # a key of SOURCES


def passages_of(cuts: Iterable[Cut]) -> Iterator[Passage]:
    for cut in cuts:
        for number, text in enumerate(cut.texts):
            yield Passage(f"{cut.id}#{number}" if len(cut.texts) > 1 else cut.id, cut.id, cut.title, text)


def pairs_of(passages: Sequence[Passage]) -> Iterator[Pair]:
    """Yield pairs in the order of the passages, which must be grouped by document."""
    titled = with_titles(passages)
    for n, passage in enumerate(passages):
        if n in titled:
            yield title_of(passage)
        if not is_first(passages, n):
            yield Pair(passages[n - 1].text, passage.text, passage.document, passage.id, "neighbour")
        if cloze := without_a_sentence(passage):
            yield Pair(*cloze, passage.document, passage.id, "sentence")


def queries_of(passages: Sequence[Passage]) -> Iterator[Pair]:
    """Yield pairs of a passage with its title or with a few words of a sentence: people search like this, while
    sentences and neighbours are longer and say more."""
    titled = with_titles(passages)
    counts = Counter(word for passage in passages for word in {*WORD.findall(passage.text.lower())})
    common = {word for word, count in counts.items() if count > max(COMMON * len(passages), 1)}
    for n, passage in enumerate(passages):
        if n in titled:
            yield title_of(passage)
        if words := some_words(passage, common):
            yield Pair(words, passage.text, passage.document, passage.id, "words")


def with_titles(passages: Sequence[Passage]) -> set[int]:
    """Return the indices of the first passages of documents with a title that few documents share."""
    first = [n for n, passage in enumerate(passages) if is_first(passages, n) and passage.title.strip()]
    counts = Counter(passages[n].title for n in first)
    return {n for n in first if counts[passages[n].title] <= MOST_ALIKE}


def title_of(passage: Passage) -> Pair:
    return Pair(passage.title, passage.text, passage.document, passage.id, "title")


def some_words(passage: Passage, common: Collection[str]) -> str:
    """Draw one of the sentences and some of its words, in order and without common words. Return "" if no sentence has
    enough words.

    >>> some_words(Passage("a", "a", "", "Few know why cats land on their feet."), {"why", "on", "their"})
    'Few know cats land'
    """
    rng = random.Random(int(key_of("words", passage.id)))
    sentences = [WORD.findall(passage.text[start:end]) for start, end in sentence_spans(passage.text)]
    rare = [[word for word in words if word.lower() not in common] for words in sentences]
    fitting = [words for words in rare if len(words) >= ASKED[0]]
    if not fitting:
        return ""
    words = rng.choice(fitting)
    kept = sorted(rng.sample(range(len(words)), min(rng.randint(*ASKED), len(words))))
    return " ".join(words[n] for n in kept)


def in_equal_shares(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Draw at most `most` pairs at random, equally many from each source as far as it has them: neighbours outnumber
    titles, and teach less."""
    by_source: dict[str, list[tuple[int, Pair]]] = {}
    for n, pair in enumerate(pairs):
        by_source.setdefault(pair.source, []).append((n, pair))
    kept: list[tuple[int, Pair]] = []
    rarest_first = sorted(by_source.values(), key=len)
    for place, numbered_pairs in enumerate(rarest_first):
        share = (most - len(kept)) // (len(rarest_first) - place)
        kept += sorted(numbered_pairs, key=lambda numbered: key_of("pair", numbered[0]))[:share]
    return [pair for _, pair in sorted(kept, key=lambda numbered: numbered[0])]


def is_first(passages: Sequence[Passage], n: int) -> bool:
    return n == 0 or passages[n - 1].document != passages[n].document


def without_a_sentence(passage: Passage) -> tuple[str, str] | None:
    """Return a random sentence of a passage and the rest of the passage, or None if no sentence fits.

    >>> text = "Cats land on their feet. Few know why that is so."
    >>> without_a_sentence(Passage("a", "a", "", text))
    ('Cats land on their feet.', 'Few know why that is so.')
    """
    spans = sentence_spans(passage.text)
    fitting = [
        (a, b) for a, b in spans if WORDS[0] <= len(passage.text[a:b].split()) <= WORDS[1] and len(spans) > 1
    ]
    if not fitting:
        return None
    start, end = fitting[int(key_of("sentence", passage.id)) % len(fitting)]
    parts = passage.text[:start].strip(), passage.text[end:].strip()
    return passage.text[start:end], " ".join(part for part in parts if part)
