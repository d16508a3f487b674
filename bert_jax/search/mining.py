"""Hard negatives: texts that an embedder finds near an anchor, and that are no positives of it."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np

from bert_jax.data.examples.groups import Group
from bert_jax.errors import BertJaxError
from bert_jax.inference.embed import DOCUMENTS, QUERIES
from bert_jax.retrieval import nearest

BLOCK = 4096  # anchors whose candidates are held, and scored, at once
NOISE = 1e-5  # by which scores of texts may differ that a model reads as the same


class Embedder(Protocol):
    def of(self, texts: Sequence[str], prompts: Sequence[str] = ()) -> Any:
        """Vectors [N, D] of length 1, which slices and indices read."""


class Reranker(Protocol):
    def of(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """The score [N] of each anchor with a text."""


@dataclass(frozen=True)
class Limits:
    """Which texts near an anchor are its negatives. Scores are cosines, or those of a reranker."""

    negatives: int = 3  # of an anchor
    first: int = 0  # the nearest texts that are passed over: they may be right, too
    last: int = 100  # the farthest that is looked at, by its place
    # A negative's score is lower than the positive's by more than this: a share of the positive's cosine, or a
    # difference of a reranker's scores.
    margin: float = 0.05
    least: float = -math.inf
    most: float = math.inf

    def __post_init__(self):
        if self.last < self.first + self.negatives:
            raise BertJaxError(
                f"--last {self.last} leaves fewer than {self.negatives} texts after the first {self.first}; raise it"
            )


@dataclass
class Mined:
    """What was mined, counted."""

    groups: int = 0
    too_few: int = 0  # anchors with fewer negatives than were wanted, which are left out


@dataclass
class Search:
    """For the negatives of one anchor."""

    anchor: str
    positive: str
    near: np.ndarray  # texts that may be negatives, the nearest first
    cosines: np.ndarray
    right: float = 0.0  # the positive's score
    below: float = 0.0  # which the score of a negative stays
    looked: int = 0  # at so many of `near`
    negatives: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def next(self, wanted: int) -> range:
        """The next candidates, while negatives are missing: at least as many as are missing and as were looked at
        before, so that few rounds reach the end."""
        missing = wanted - len(self.negatives)
        start = self.looked
        if missing > 0:
            self.looked = min(len(self.near), start + max(missing, start))
        return range(start, self.looked)

    def consider(self, place: int, score: float, limits: Limits) -> None:
        fits = limits.least <= score <= limits.most and score < self.below
        if fits and len(self.negatives) < limits.negatives:
            self.negatives.append(int(self.near[place]))
            self.scores.append(score)


def mine(
    groups: Sequence[Group],
    corpus: Sequence[str],
    embedder: Embedder,
    limits: Limits,
    counts: Mined,
    reranker: Reranker | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows of an anchor, its positive, its negatives and the scores of these, in the order of the groups. Candidates
    are the texts of the `corpus` and all positives. A reranker's scores take the place of the cosines, but not of the
    order: the negatives are the nearest texts within the limits."""
    texts = list(dict.fromkeys(chain((group.texts[1] for group in groups), corpus)))
    documents = embedder.of(texts, DOCUMENTS)
    anchors = embedder.of([group.texts[0] for group in groups], QUERIES)
    place = places_of(groups, texts)
    right = np.array([place[group.texts[1]] for group in groups])
    ranked = nearest(anchors, documents, None, limits.last, positives_of(groups, place))
    searches = (
        Search(group.texts[0], group.texts[1], near[limits.first :], cosines[limits.first :])
        for group, (near, cosines) in zip(groups, ranked, strict=True)
    )
    first = 0
    while block := list(islice(searches, BLOCK)):
        if reranker:
            scores = reranker.of([(search.anchor, search.positive) for search in block])
        else:
            rows = slice(first, first + len(block))
            scores = (anchors[rows] * documents[right[rows]]).sum(-1)
        first += len(block)
        for search, score in zip(block, scores.tolist(), strict=True):
            search.right = score
            search.below = score - max(limits.margin * (1 if reranker else abs(score)), NOISE)
        search_all(block, texts, limits, reranker)
        for search in block:
            if len(search.negatives) < limits.negatives:
                counts.too_few += 1
                continue
            counts.groups += 1
            negatives = {f"negative_{n}": texts[i] for n, i in enumerate(search.negatives, 1)}
            scored = [search.right, *search.scores]
            yield {"anchor": search.anchor, "positive": search.positive, **negatives, "scores": scored}


def search_all(
    searches: Sequence[Search], texts: Sequence[str], limits: Limits, reranker: Reranker | None
) -> None:
    """In rounds: a reranker is slow, and most anchors have their negatives among the first few texts."""
    while asked := [(search, n) for search in searches for n in search.next(limits.negatives)]:
        if reranker:
            scores = reranker.of([(search.anchor, texts[search.near[n]]) for search, n in asked]).tolist()
        else:
            scores = [float(search.cosines[n]) for search, n in asked]
        for (search, n), score in zip(asked, scores, strict=True):
            search.consider(n, score, limits)


def places_of(groups: Sequence[Group], texts: Sequence[str]) -> dict[str, int]:
    """Of the groups' own texts among all."""
    own = {text for group in groups for text in group.texts[:2]}
    return {text: n for n, text in enumerate(texts) if text in own}


def positives_of(groups: Sequence[Group], place: dict[str, int]) -> list[np.ndarray]:
    """For each group the places of its anchor, and of all positives that its anchor or its label has."""
    alike: dict[str, set[int]] = defaultdict(set)
    for group in groups:
        alike[group.alike or group.texts[0]].update(place[text] for text in group.texts[:2] if text in place)
    known = {name: np.array(sorted(places)) for name, places in alike.items()}
    return [known[group.alike or group.texts[0]] for group in groups]
