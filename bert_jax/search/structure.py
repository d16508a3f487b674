"""Make training pairs from documents without labels: a title and the passage below it, a passage and the next one, a
sentence and the rest of its passage, or a made-up query (a few words of a sentence, as people type) and its passage."""

import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bert_jax.data.randomness import random_key
from bert_jax.search.passages import CutDocument, sentence_spans

MOST_ALIKE = 3  # documents that may share a title; a title of more says little about each and is not used
SENTENCE_WORDS = (4, 40)  # the fewest and the most words of a sentence that is used as a query
QUERY_WORDS = (2, 8)  # the fewest and the most words of a made-up query
COMMON = 0.1  # a word in more than this share of the passages is not used in made-up queries
WORD = re.compile(r"\w[\w'-]*")
PAIR_SOURCES = {
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
class DocumentPair:
    anchor: str
    positive: str
    document: str
    passage: str  # the id of the passage that should be found
    source: str  # a key of PAIR_SOURCES


def list_passages(cuts: Iterable[CutDocument]) -> Iterator[Passage]:
    for cut in cuts:
        for number, text in enumerate(cut.texts):
            yield Passage(f"{cut.id}#{number}" if len(cut.texts) > 1 else cut.id, cut.id, cut.title, text)


def make_pairs(passages: Sequence[Passage]) -> Iterator[DocumentPair]:
    """Yield pairs in the order of the passages, which must be grouped by document."""
    titled = find_titled(passages)
    for n, passage in enumerate(passages):
        if n in titled:
            yield title_pair(passage)
        if not starts_document(passages, n):
            yield DocumentPair(passages[n - 1].text, passage.text, passage.document, passage.id, "neighbour")
        if cloze := split_off_sentence(passage):
            yield DocumentPair(*cloze, passage.document, passage.id, "sentence")


def make_query_pairs(passages: Sequence[Passage]) -> Iterator[DocumentPair]:
    """Yield pairs of a passage with its title or with a few words of a sentence: people search like this, while
    sentences and neighbours are longer and say more."""
    titled = find_titled(passages)
    counts = Counter(word for passage in passages for word in {*WORD.findall(passage.text.lower())})
    common = {word for word, count in counts.items() if count > max(COMMON * len(passages), 1)}
    for n, passage in enumerate(passages):
        if n in titled:
            yield title_pair(passage)
        if words := draw_query(passage, common):
            yield DocumentPair(words, passage.text, passage.document, passage.id, "words")


def find_titled(passages: Sequence[Passage]) -> set[int]:
    """Return the indices of the first passages of documents with a title that few documents share."""
    first = [
        n for n, passage in enumerate(passages) if starts_document(passages, n) and passage.title.strip()
    ]
    counts = Counter(passages[n].title for n in first)
    return {n for n in first if counts[passages[n].title] <= MOST_ALIKE}


def title_pair(passage: Passage) -> DocumentPair:
    return DocumentPair(passage.title, passage.text, passage.document, passage.id, "title")


def draw_query(passage: Passage, common: Collection[str]) -> str:
    """Draw one of the sentences and some of its words, in order and without common words. Return "" if no sentence has
    enough words.

    >>> draw_query(Passage("a", "a", "", "Few know why cats land on their feet."), {"why", "on", "their"})
    'Few know cats land'
    """
    rng = random.Random(int(random_key("words", passage.id)))
    sentences = [WORD.findall(passage.text[start:end]) for start, end in sentence_spans(passage.text)]
    rare = [[word for word in words if word.lower() not in common] for words in sentences]
    fitting = [words for words in rare if len(words) >= QUERY_WORDS[0]]
    if not fitting:
        return ""
    words = rng.choice(fitting)
    kept = sorted(rng.sample(range(len(words)), min(rng.randint(*QUERY_WORDS), len(words))))
    return " ".join(words[n] for n in kept)


def sample_equally(pairs: Sequence[DocumentPair], most: int) -> list[DocumentPair]:
    """Draw at most `most` pairs at random, equally many from each source as far as it has them: neighbours outnumber
    titles, and teach less."""
    by_source: dict[str, list[tuple[int, DocumentPair]]] = {}
    for n, pair in enumerate(pairs):
        by_source.setdefault(pair.source, []).append((n, pair))
    kept: list[tuple[int, DocumentPair]] = []
    rarest_first = sorted(by_source.values(), key=len)
    for place, numbered_pairs in enumerate(rarest_first):
        share = (most - len(kept)) // (len(rarest_first) - place)
        kept += sorted(numbered_pairs, key=lambda numbered: random_key("pair", numbered[0]))[:share]
    return [pair for _, pair in sorted(kept, key=lambda numbered: numbered[0])]


def starts_document(passages: Sequence[Passage], n: int) -> bool:
    return n == 0 or passages[n - 1].document != passages[n].document


def split_off_sentence(passage: Passage) -> tuple[str, str] | None:
    """Return a random sentence of a passage and the rest of the passage, or None if no sentence fits.

    >>> text = "Cats land on their feet. Few know why that is so."
    >>> split_off_sentence(Passage("a", "a", "", text))
    ('Cats land on their feet.', 'Few know why that is so.')
    """
    spans = sentence_spans(passage.text)
    fitting = [
        (a, b)
        for a, b in spans
        if SENTENCE_WORDS[0] <= len(passage.text[a:b].split()) <= SENTENCE_WORDS[1] and len(spans) > 1
    ]
    if not fitting:
        return None
    start, end = fitting[int(random_key("sentence", passage.id)) % len(fitting)]
    parts = passage.text[:start].strip(), passage.text[end:].strip()
    return passage.text[start:end], " ".join(part for part in parts if part)
