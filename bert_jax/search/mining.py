"""Mine hard negatives: texts that an embedder finds near an anchor but that are not its positives."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import track
from bert_jax.data.examples.column_names import ANCHOR, NEGATIVE, POSITIVE
from bert_jax.data.examples.groups import Group
from bert_jax.inference.exact_search import search_exact
from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS

BLOCK = 4096  # anchors whose candidates are held and scored at once
NOISE = 1e-5  # how much the scores of texts that look identical to a model may differ


class TextEncoder(Protocol):
    def encode(self, texts: Sequence[str], prompts: Sequence[str] = ()) -> Any:
        """Return unit vectors [N, D], which can be sliced and indexed."""


class PairScorer(Protocol):
    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return the score of each (anchor, text) pair, [N]."""


@dataclass(frozen=True)
class MiningLimits:
    """The limits on texts near an anchor that become its negatives. Scores are cosines or a reranker's scores."""

    negatives: int = 3  # per anchor
    range_min: int = 0  # the number of nearest texts to skip: they may be correct, too
    range_max: int = 100  # the number of nearest texts to consider, including those skipped
    # A negative's score must be below the positive's by more than this: a fraction of the positive's cosine, or an
    # absolute difference of a reranker's scores.
    margin: float = 0.05
    min_score: float = -math.inf
    max_score: float = math.inf

    def __post_init__(self):
        if self.range_max < self.range_min + self.negatives:
            raise BertJaxError(
                f"--range-max {self.range_max} leaves fewer than {self.negatives} texts after the first "
                f"{self.range_min}; raise it"
            )


@dataclass
class MiningCounts:
    """Counts of the mined and the skipped groups."""

    groups: int = 0
    too_few: int = 0  # anchors left out because too few negatives were found


@dataclass
class NegativeSearch:
    """The search for the negatives of one anchor."""

    anchor: str
    positive: str
    candidates: np.ndarray  # indices of the candidate texts, nearest first
    cosines: np.ndarray
    positive_score: float = 0.0  # the positive's score
    score_limit: float = 0.0  # a negative's score must be less than this
    num_considered: int = 0  # the number of entries of `near` considered so far
    negatives: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def next_range(self, wanted: int) -> range:
        """Return the positions in `candidates` to consider next; none if no negatives are missing. The range is at
        least as long as the number of missing negatives and the number considered before (unless `candidates` ends),
        so that few rounds reach the end."""
        missing = wanted - len(self.negatives)
        start = self.num_considered
        if missing > 0:
            self.num_considered = min(len(self.candidates), start + max(missing, start))
        return range(start, self.num_considered)

    def consider(self, place: int, score: float, limits: MiningLimits) -> None:
        fits = limits.min_score <= score <= limits.max_score and score < self.score_limit
        if fits and len(self.negatives) < limits.negatives:
            self.negatives.append(int(self.candidates[place]))
            self.scores.append(score)


def mine_hard_negatives(
    groups: Sequence[Group],
    corpus: Sequence[str],
    embedder: TextEncoder,
    limits: MiningLimits,
    counts: MiningCounts,
    reranker: PairScorer | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows with an anchor, its positive, its negatives and the scores of the positive and the negatives, in the
    order of the groups. Candidates are the texts of the `corpus` and all positives. A reranker's scores replace the
    cosines but do not change the order: the negatives are the texts nearest by cosine that satisfy the limits."""
    texts = list(dict.fromkeys(chain((group.texts[1] for group in groups), corpus)))
    documents = embedder.encode(texts, DOCUMENT_PROMPTS)
    anchors = embedder.encode([group.texts[0] for group in groups], QUERY_PROMPTS)
    place = index_own_texts(groups, texts)
    right = np.array([place[group.texts[1]] for group in groups])
    ranked = search_exact(anchors, documents, None, limits.range_max, list_positives(groups, place))
    searches = (
        NegativeSearch(group.texts[0], group.texts[1], near[limits.range_min :], cosines[limits.range_min :])
        for group, (near, cosines) in zip(track(groups, "anchors", "mining"), ranked, strict=True)
    )
    first = 0
    while block := list(islice(searches, BLOCK)):
        if reranker:
            scores = reranker.score([(search.anchor, search.positive) for search in block])
        else:
            rows = slice(first, first + len(block))
            scores = (anchors[rows] * documents[right[rows]]).sum(-1)
        first += len(block)
        for search, score in zip(block, scores.tolist(), strict=True):
            search.positive_score = score
            search.score_limit = score - max(limits.margin * (1 if reranker else abs(score)), NOISE)
        run_searches(block, texts, limits, reranker)
        for search in block:
            if len(search.negatives) < limits.negatives:
                counts.too_few += 1
                continue
            counts.groups += 1
            negatives = {f"{NEGATIVE}_{n}": texts[i] for n, i in enumerate(search.negatives, 1)}
            scored = [search.positive_score, *search.scores]
            yield {ANCHOR: search.anchor, POSITIVE: search.positive, **negatives, "scores": scored}


def run_searches(
    searches: Sequence[NegativeSearch],
    texts: Sequence[str],
    limits: MiningLimits,
    reranker: PairScorer | None,
) -> None:
    """Find the negatives of all searches in rounds: a reranker is slow, and most anchors have their negatives among
    the first few texts."""
    while asked := [(search, n) for search in searches for n in search.next_range(limits.negatives)]:
        if reranker:
            scores = reranker.score(
                [(search.anchor, texts[search.candidates[n]]) for search, n in asked]
            ).tolist()
        else:
            scores = [float(search.cosines[n]) for search, n in asked]
        for (search, n), score in zip(asked, scores, strict=True):
            search.consider(n, score, limits)


def index_own_texts(groups: Sequence[Group], texts: Sequence[str]) -> dict[str, int]:
    """Return the index in `texts` of each anchor and positive that `texts` contains."""
    own = {text for group in groups for text in group.texts[:2]}
    return {text: n for n, text in enumerate(texts) if text in own}


def list_positives(groups: Sequence[Group], place: dict[str, int]) -> list[np.ndarray]:
    """Return, for each group, the indices of the anchors and positives of all groups that share its label, or its
    anchor if it has no label."""
    alike: dict[str, set[int]] = defaultdict(set)
    for group in groups:
        alike[group.alike or group.texts[0]].update(place[text] for text in group.texts[:2] if text in place)
    places_by_name = {name: np.array(sorted(places)) for name, places in alike.items()}
    return [places_by_name[group.alike or group.texts[0]] for group in groups]
