"""Search an index: `bert_jax.Index.open(path).search("query")`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.hashes import differing, misfit
from bert_jax.metrics.retrieval import DEPTH, highest
from bert_jax.search import index_manifest as manifests
from bert_jax.search.fusion import fused
from bert_jax.search.index_manifest import AGAIN, REMOVED, Manifest
from bert_jax.search.keywords import Keywords, WeighedQuery
from bert_jax.search.nearest import nearest_in
from bert_jax.search.segment import SMALL, Segment, opened
from bert_jax.text.truncation import Truncated, warn

if TYPE_CHECKING:  # imported only where it is used, because it imports everything that builds models
    from bert_jax.inference.model import Model

KEYWORDS, VECTORS, FUSION, RERANKER = "keywords", "vectors", "fusion", "reranker"
Place = tuple[int, int]  # the index of a segment, and of a passage in it
Ranking = dict[Place, float]  # passages and their scores, best first


@dataclass(frozen=True)
class Part:
    """The rank and the score of a passage in one ranking: of a leg, of the fusion or of the reranker."""

    rank: int
    score: float
    words: dict[str, float] = field(default_factory=dict)  # keywords only: what each word added to the score


@dataclass(frozen=True)
class Hit:
    """A passage that matches a query: characters `start` to `end` of the document `id`."""

    id: str
    score: float
    text: str
    start: int
    end: int
    title: str
    parts: dict[str, Part]


class Index:
    """An index, as it was when it was opened; `refresh` loads later changes."""

    manifest: Manifest
    segments: list[Segment]

    def __init__(self, path, model=None):
        self.path, self.model = Path(path), model
        self.rerankers: dict[str, Model] = {}

    @classmethod
    def open(cls, path, model=None, verify: bool = False) -> "Index":
        """Open an index. `model` is the model's directory if it has moved since the index was built. The hashes of the
        small files are checked, or those of all files with `verify`."""
        index = cls(path, model)
        index.manifest, index.segments = current(index.path, verify)
        return index

    def refresh(self) -> None:
        """Load the changes made since the index was opened."""
        self.manifest, self.segments = current(self.path)
        self.__dict__.pop("keywords", None)

    def __len__(self) -> int:
        return self.manifest.documents

    def __repr__(self) -> str:
        return f"<index of {len(self):,} documents in {self.manifest.passages:,} passages: {self.path}>"

    @cached_property
    def keywords(self) -> Keywords:
        return Keywords([(segment.postings, segment.live) for segment in self.segments])

    @cached_property
    def encoder(self):
        from bert_jax.search.index_encoder import encoder_of

        return encoder_of(self.path, self.manifest.model, self.model)

    def search(
        self,
        query: str | Sequence[str],
        top: int = 10,
        legs: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
        reranker=None,
        rerank_top: int = 50,
    ):
        """Return the `top` passages for a query, or a list of them for each of several queries.

        `legs` are "keywords" (BM25), "vectors" (cosine) or both; by default, all that the index has. The rankings of
        two legs are fused with `weights`, 1 by default. A `reranker`, the directory of a cross-encoder, rescores the
        first `rerank_top` passages; the other passages follow them with their previous order and scores.
        """
        queries = [query] if isinstance(query, str) else list(query)
        check_number(top, "top", is_whole=True, allowed=Range(1))
        check_number(rerank_top, "rerank_top", is_whole=True, allowed=Range(1))
        legs, weights = self.checked(legs, weights), weights or {}
        depth = max(top, DEPTH if len(legs) > 1 else 0, rerank_top if reranker else 0)
        vectors = self.encoder.queries(queries) if VECTORS in legs and queries else None
        near = [] if vectors is None else self.by_vectors(vectors, depth)
        judge = self.reranker(reranker) if reranker else None
        truncated = Truncated(judge.config.max_positions) if judge else None
        hits = []
        for number, text in enumerate(queries):
            rankings: dict[str, Ranking] = {}
            words = None
            if KEYWORDS in legs:
                words = self.keywords.weigh(text)
                rankings[KEYWORDS] = self.by_keywords(words, depth)
            if near:
                rankings[VECTORS] = near[number]
            best = rankings[legs[0]]
            if len(legs) > 1:
                best = rankings[FUSION] = self.ordered(
                    fused({leg: list(ranking) for leg, ranking in rankings.items()}, weights)
                )
            if judge and truncated:
                reranked = rankings[RERANKER] = self.reranked(text, list(best)[:rerank_top], judge, truncated)
                best = reranked | {place: score for place, score in best.items() if place not in reranked}
            hits.append([self.hit(place, best[place], rankings, words) for place in list(best)[:top]])
        if truncated and truncated.truncated:
            warn(truncated.notice(what="pairs of a query and a passage"))
        return hits[0] if isinstance(query, str) else hits

    @property
    def legs(self) -> list[str]:
        return [KEYWORDS, VECTORS] if self.manifest.model else [KEYWORDS]

    def checked(self, legs: Sequence[str] | None, weights: Mapping[str, float] | None) -> list[str]:
        """Return the legs to search by. Raise if the index lacks one of them, or if a weight is invalid."""
        there = self.legs
        if VECTORS in (legs or ()) and VECTORS not in there:
            raise BertJaxError(
                f"{self.path} has no vectors because it was built without --model; search it by keywords"
            )
        for name in [*(legs or ()), *(weights or ())]:
            if name not in there:
                raise BertJaxError(f'this index is searched by {" and ".join(there)}, not by "{name!s:.60}"')
        for name, weight in (weights or {}).items():
            check_number(weight, f"the weight of {name}", allowed=Range(0))
        return [name for name in there if legs is None or name in legs] or there

    def by_keywords(self, words: WeighedQuery, depth: int) -> Ranking:
        scored = []
        for segment, scores in zip(self.segments, self.keywords.scores(words), strict=True):
            rows = np.flatnonzero(scores)
            best = rows[highest(scores[rows], segment.order[rows], depth)]
            scored.append((best, scores[best]))
        return self.merged(scored, depth)

    def by_vectors(self, vectors: np.ndarray, depth: int) -> list[Ranking]:
        """Return the ranking of each query [Q, D]."""
        scored = [nearest_in(segment, vectors, depth) for segment in self.segments]
        return [self.merged([of_segment[n] for of_segment in scored], depth) for n in range(len(vectors))]

    def merged(self, scored: Sequence[tuple[np.ndarray, np.ndarray]], depth: int) -> Ranking:
        """Merge the passages and scores of each segment into one ranking of at most `depth` passages."""
        scores = {
            (number, passage): score
            for number, (rows, values) in enumerate(scored)
            for passage, score in zip(rows.tolist(), values.tolist(), strict=True)
        }
        return dict(list(self.ordered(scores).items())[:depth])

    def ordered(self, scores: Mapping[Place, float]) -> Ranking:
        """Sort passages by score, best first; equal scores by document id, then by position in the document."""

        def rank(place: Place) -> tuple:
            segment, passage = place
            return -scores[place], *self.segments[segment].place(passage)

        return {place: scores[place] for place in sorted(scores, key=rank)}

    def reranker(self, directory) -> "Model":
        from bert_jax.inference.model import load
        from bert_jax.inference.reranker import check_cross_encoder

        name = str(directory)
        if name not in self.rerankers:
            model = load(directory)
            check_cross_encoder(model, name)
            self.rerankers[name] = model
        return self.rerankers[name]

    def reranked(self, query: str, places: Sequence[Place], judge: "Model", truncated: Truncated) -> Ranking:
        texts = [self.segments[segment].searched[passage] for segment, passage in places]
        return {
            places[ranked.index]: ranked.score for ranked in judge.rank(query, texts, truncated=truncated)
        }

    def hit(
        self, place: Place, score: float, rankings: Mapping[str, Ranking], words: WeighedQuery | None
    ) -> Hit:
        segment, passage = self.segments[place[0]], place[1]
        added = words.of(*place) if words else {}
        parts = {
            leg: Part(list(ranking).index(place) + 1, ranking[place], added if leg == KEYWORDS else {})
            for leg, ranking in rankings.items()
            if place in ranking
        }
        document = segment.documents[passage]
        start, end = segment.spans[passage].tolist()
        return Hit(
            segment.ids[document], score, segment.texts[passage], start, end, segment.titles[document], parts
        )


def current(path: Path, verify: bool = False) -> tuple[Manifest, list[Segment]]:
    """Return index.json and its segments, with their files mapped. If another process changes the index and removes
    files meanwhile, start again with the new index.json."""
    manifest = manifests.read(path)
    files = dict(manifest.files())
    checked = (
        files
        if verify
        else {
            name: facts
            for name, facts in files.items()
            if name.startswith(REMOVED) or Path(name).name in SMALL
        }
    )
    try:
        damage = next(differing(path, checked), None) or next(
            filter(None, (misfit(path, name, facts["bytes"]) for name, facts in files.items())), None
        )
        if damage is None:
            return manifest, [opened(path, facts) for facts in manifest.segments]
    except FileNotFoundError as error:
        damage = f"it lacks its file {error.filename}"
    if manifests.read(path).changes != manifest.changes:
        return current(path, verify)
    raise BertJaxError(f"{path}: {damage}; {AGAIN}")
