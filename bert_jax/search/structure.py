"""Pairs that documents give by themselves, without a label: a title and what stands below it, a passage and the next
one, a sentence and the rest of its passage."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bert_jax.data.randomness import key_of
from bert_jax.search.passages import Cut, sentence_spans

MOST_ALIKE = 3  # documents with the same title; a title of more tells little of each
WORDS = (4, 40)  # of a sentence that is asked for
SOURCES = {
    "title": "titles",
    "sentence": "sentences",
    "neighbour": "neighbours",
}  # of pairs, and their plurals


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
    passage: str  # the id of the one that should be found
    source: str  # of SOURCES


def passages_of(cuts: Iterable[Cut]) -> Iterator[Passage]:
    for cut in cuts:
        for number, text in enumerate(cut.texts):
            yield Passage(f"{cut.id}#{number}" if len(cut.texts) > 1 else cut.id, cut.id, cut.title, text)


def pairs_of(passages: Sequence[Passage]) -> Iterator[Pair]:
    """In the order of the passages, those of a document one after the other."""
    titles = Counter(
        passage.title for n, passage in enumerate(passages) if is_first(passages, n) and passage.title.strip()
    )
    for n, passage in enumerate(passages):
        first = is_first(passages, n)
        if first and 0 < titles[passage.title] <= MOST_ALIKE:
            yield Pair(passage.title, passage.text, passage.document, passage.id, "title")
        if not first:
            yield Pair(passages[n - 1].text, passage.text, passage.document, passage.id, "neighbour")
        if cloze := without_a_sentence(passage):
            yield Pair(*cloze, passage.document, passage.id, "sentence")


def in_equal_shares(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """So many of the pairs, drawn at random, of each source as many as of the others if it has them: neighbours
    outnumber titles, and teach less."""
    by_source: dict[str, list[tuple[int, Pair]]] = {}
    for n, pair in enumerate(pairs):
        by_source.setdefault(pair.source, []).append((n, pair))
    kept: list[tuple[int, Pair]] = []
    rarest_first = sorted(by_source.values(), key=len)
    for place, some in enumerate(rarest_first):
        share = (most - len(kept)) // (len(rarest_first) - place)
        kept += sorted(some, key=lambda numbered: key_of("pair", numbered[0]))[:share]
    return [pair for _, pair in sorted(kept, key=lambda numbered: numbered[0])]


def is_first(passages: Sequence[Passage], n: int) -> bool:
    return n == 0 or passages[n - 1].document != passages[n].document


def without_a_sentence(passage: Passage) -> tuple[str, str] | None:
    """One of its sentences, drawn at random, and the others.

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
