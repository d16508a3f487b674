"""Search an index, `bert_jax.Index.open(path).search("query")`, and change it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.surrogates import replace_surrogates
from bert_jax.inference import exact_search
from bert_jax.metrics.retrieval import DEPTH
from bert_jax.search.documents import DocumentColumns, Documents, open_documents
from bert_jax.search.fusion import Explanation, PassagePosition, Ranked, Ranking, RankingEntry, fuse_rankings
from bert_jax.search.index_manifest import DENSE_ROWS, SPARSE_ROWS, TOKEN_ROWS, is_built
from bert_jax.search.index_reader import AnyPath, IndexReader
from bert_jax.search.nearest import find_by_tokens, find_nearest
from bert_jax.search.postings import WeightedQuery
from bert_jax.search.reranking import MatchedQuery, load_reranker, open_ranker
from bert_jax.search.retrievers import (
    FUSION,
    KEYWORDS,
    LATE_INTERACTION,
    RERANKER,
    SPARSE,
    VECTORS,
    available_retrievers,
    choose_retrievers,
    read_queries,
)
from bert_jax.search.sparse import weight_query
from bert_jax.text.array_likes import to_plain_list

if TYPE_CHECKING:  # imported only where they are used: what builds models
    from bert_jax.inference.encoder import Encoder
    from bert_jax.search.index_encoder import IndexModel
    from bert_jax.search.index_update import IndexUpdate
    from bert_jax.search.index_writer import UpdateCounts

RERANK_TOP = 50  # passages that a reranker scores


@dataclass(frozen=True)
class Hit:
    """A passage that matches a query: characters `start` to `end` of the document `id`."""

    id: str
    score: float
    text: str
    start: int
    end: int
    title: str
    rankings: dict[str, RankingEntry]


class Index(IndexReader):
    """An index, as it was when it was opened or last changed with it; `refresh` loads the changes of others."""

    @classmethod
    def build(
        cls,
        documents: Documents,
        path: AnyPath,
        *,
        model: "IndexModel | None" = None,
        passage_tokens: int | None = None,
        overlap: int | None = None,
        quantize: Literal["binary"] | None = None,
        approximate: Literal["hnsw"] | None = None,
        language: str = "auto",
        text: str = "",
        id: str = "",
        title: str = "",
        sparse_model: "IndexModel | None" = None,
        multi_vector_model: "IndexModel | None" = None,
        pool_factor: float | None = None,
    ) -> "Index":
        """Build an index in the directory `path`, as `bert-jax index` does, and open it.

        `documents` are a path or a list of `Path`s, which are read like the command's DOCS, or documents in memory: a
        list or an iterator of texts, which get the ids "0", "1", ..., of pairs (id, text), or of dicts with `id`,
        `text` and perhaps `title`. They are found by keywords, with a `model`, an embedder's directory or an embedder
        loaded from one, also by vectors, with a `sparse_model` also by sparse vectors, and with a `multi_vector_model`
        also by token vectors, of which `pool_factor` averages so many to one. Keywords match by the stems of their
        `language`, as "english"; "auto" detects it, and "none" matches them as they are written. `text`, `id`
        and `title` name columns of tables. A passage has `passage_tokens`, by default 256 or the model's maximum, and
        shares `overlap` tokens, by default an eighth, with the next. `quantize="binary"` searches vectors of a bit per
        dimension, and `approximate="hnsw"` an index of faiss; both rescore what they find with the full vectors.

        >>> index = bert_jax.Index.build(["Cats land on their feet.", "Fish swim."], "animals")
        >>> index.search("fish")[0].text
        'Fish swim.'
        """
        from bert_jax.search.index_update import IndexOptions, IndexSettings, IndexUpdate, update_index

        index = cls(path, model, sparse_model, multi_vector_model)
        options = IndexOptions(
            passage_tokens=passage_tokens,
            overlap=overlap,
            quantization=quantize,
            approximate=approximate,
            language=language,
            pool_factor=pool_factor,
            **index.given,
        )
        with use_python_spelling():
            if is_built(index.path):
                raise BertJaxError(
                    f'{index.path} is an index already; bert_jax.Index.open("{index.path}").add(...) adds to it'
                )
            source = open_documents(documents, DocumentColumns(text, id, title))
            update_index(IndexSettings(index.path, options), IndexUpdate(source), warn_caller)
        return cls.open(path, **index.given)

    def add(
        self, documents: Documents, *, text: str = "", id: str = "", title: str = "", replace: bool = False
    ) -> "UpdateCounts":
        """Add documents, as `build` takes them, to the index and to its directory; return how many were new, changed
        or unchanged. A document in memory with the id of another replaces it; one in a file that the index does not
        know only with `replace`. Texts without ids are numbered on. `text`, `id` and `title` are those of `build`.

        >>> bert_jax.Index.open("index").add([("a", "The cat sat."), ("d", "Birds sing.")])
        UpdateCounts(new=1, changed=1, unchanged=0, removed=0, encoded=0)
        """
        from bert_jax.search.index_update import IndexUpdate

        check_flag(replace, "replace")
        with use_python_spelling():
            self.refresh()
            ids = (segment.ids[number] for segment in self.segments for number in segment.live_documents())
            numbers = (int(name) for name in ids if name.isascii() and name.isdigit())
            source = open_documents(documents, DocumentColumns(text, id, title), max(numbers, default=-1) + 1)
            return self._change(IndexUpdate(source, replace=replace))

    def remove(self, ids: str | Iterable[str]) -> "UpdateCounts":
        """Remove documents from the index and its directory.

        >>> bert_jax.Index.open("index").remove(["b"]).removed
        1
        """
        from bert_jax.search.index_update import IndexUpdate

        listed = [ids] if isinstance(ids, str) else to_plain_list(ids)
        if isinstance(listed, bytes | Mapping) or not isinstance(listed, Iterable):
            raise BertJaxError(f"ids must be the id of a document or a list of ids, not {ids!r:.60}")
        listed = list(listed)
        for number, name in enumerate(listed):
            if not isinstance(name, str):
                raise BertJaxError(f"ids[{number}] must be the id of a document, a string, not {name!r:.60}")
        with use_python_spelling():
            return self._change(IndexUpdate(remove=list(dict.fromkeys(map(replace_surrogates, listed)))))

    def _change(self, update: "IndexUpdate") -> "UpdateCounts":
        from bert_jax.search.index_update import IndexOptions, IndexSettings, update_index

        settings = IndexSettings(self.path, IndexOptions(**self.given))
        if update.source:
            # The models that this index has loaded already.
            settings.encoders = {name: self.encoder_of(name) for name in settings.manifest.models}
        counts = update_index(settings, update, warn_caller).counts
        self.refresh()
        return counts

    @overload
    def search(
        self, query: str, top_k: int = ..., retrievers: Sequence[str] | None = ...,
        weights: Mapping[str, float] | None = ..., reranker: "AnyPath | Encoder | None" = ..., rerank_top: int = ...,
        explain: bool = ...,
    ) -> list[Hit]: ...  # fmt: skip

    @overload
    def search(
        self, query: Sequence[str], top_k: int = ..., retrievers: Sequence[str] | None = ...,
        weights: Mapping[str, float] | None = ..., reranker: "AnyPath | Encoder | None" = ..., rerank_top: int = ...,
        explain: bool = ...,
    ) -> list[list[Hit]]: ...  # fmt: skip

    def search(
        self,
        query: str | Sequence[str],
        top_k: int = 10,
        retrievers: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
        reranker: "AnyPath | Encoder | None" = None,
        rerank_top: int = RERANK_TOP,
        explain: bool = True,
    ) -> list[Hit] | list[list[Hit]]:
        """Return the `top_k` best passages for a query, or a list of them for each of several queries.

        `retrievers` are "keywords" (BM25), "vectors" (cosine), "sparse" (inner product) and "late_interaction" (MaxSim
        of token vectors), by default all that the index has. The rankings of several retrievers are fused with
        `weights`, 1 by default. A `reranker`, a cross-encoder or a multi-vector embedder or the directory of one,
        rescores the first `rerank_top` passages; the other passages follow them with their previous order and scores.
        If the index has the token vectors of that embedder, it reads the query alone. Without `explain`, hits do not
        say what each word added to their scores, which takes a while for token vectors.

        >>> hits = bert_jax.Index.open("index").search("where do cats land?", top_k=2)
        >>> hits[0].id, hits[0].text
        ('a', 'Cats land on their feet.')
        """
        queries = read_queries(query)
        check_number(top_k, "top_k", is_whole=True, allowed=Range(1))
        check_number(rerank_top, "rerank_top", is_whole=True, allowed=Range(1))
        check_flag(explain, "explain")
        retrievers, weights = choose_retrievers(self, retrievers, weights), weights or {}
        for segment in self.segments:
            segment.files.refuse_truncated()
        ranker = None if reranker is None else open_ranker(self, self.load_reranker(reranker))
        depth = max(top_k, DEPTH if len(retrievers) > 1 else 0, rerank_top if ranker else 0)
        rank_by = {
            KEYWORDS: self.rank_keywords,
            VECTORS: self.rank_vectors,
            SPARSE: self.rank_sparse,
            LATE_INTERACTION: self.rank_late_interaction,
        }
        by_query = zip(*(rank_by[name](queries, depth) for name in retrievers), strict=True)
        hits = []
        for text, of_query in zip(queries, by_query, strict=True):
            rankings = {name: ranking for name, (ranking, _) in zip(retrievers, of_query, strict=True)}
            explained = {name: query for name, (_, query) in zip(retrievers, of_query, strict=True)}
            best = rankings[retrievers[0]]
            if len(retrievers) > 1:
                best = rankings[FUSION] = self.sort_passages(fuse_rankings(rankings, weights))
            if ranker:
                reranked, explained[RERANKER] = ranker.rank(text, list(best)[:rerank_top])
                rankings[RERANKER] = reranked
                best = reranked | {
                    position: score for position, score in best.items() if position not in reranked
                }
            explained = explained if explain else {}
            hits.append(
                [
                    self.make_hit(position, best[position], rankings, explained)
                    for position in list(best)[:top_k]
                ]
            )
        if ranker:
            ranker.warn()
        return hits[0] if isinstance(query, str) else hits

    @property
    def retrievers(self) -> list[str]:
        return available_retrievers(self.manifest)

    def rank_keywords(self, queries: Sequence[str], depth: int) -> Iterator[Ranked]:
        for text in queries:
            yield self.rank_terms(self.keywords.weight_query(text), depth)

    def rank_vectors(self, queries: Sequence[str], depth: int) -> Iterator[Ranked]:
        for ranking in self.rank_nearest(self.encoder_of(DENSE_ROWS).encode_queries(queries), depth):
            yield ranking, None

    def rank_nearest(self, vectors: np.ndarray, depth: int) -> list[Ranking]:
        """Return the ranking of each query [Q, D]."""
        scored = [find_nearest(segment, vectors, depth) for segment in self.segments]
        return [
            self.merge_segments([of_segment[n] for of_segment in scored], depth) for n in range(len(vectors))
        ]

    def rank_late_interaction(self, queries: Sequence[str], depth: int) -> Iterator[Ranked]:
        encoder = self.encoder_of(TOKEN_ROWS)
        for query in encoder.encode_queries(queries):
            ranking = self.merge_segments(find_by_tokens(query, self.segments, depth), depth)
            yield ranking, MatchedQuery(query, self.segments, encoder)

    def rank_sparse(self, queries: Sequence[str], depth: int) -> Iterator[Ranked]:
        segments = [(segment.sparse, segment.live) for segment in self.segments if segment.sparse]
        for vector, tokens in self.encoder_of(SPARSE_ROWS).encode_queries(queries):
            yield self.rank_terms(weight_query(vector, tokens, segments), depth)

    def rank_terms(self, query: WeightedQuery, depth: int) -> Ranked:
        scored = []
        sizes = [len(segment.order) for segment in self.segments]
        for segment, scores in zip(self.segments, query.score_passages(sizes), strict=True):
            minimum = np.partition(scores, -depth)[-depth] if depth < len(scores) else 0
            rows = np.flatnonzero(scores >= max(minimum, np.finfo(np.float32).tiny))
            best = rows[exact_search.top_k(scores[rows], segment.order[rows], depth)]
            scored.append((best, scores[best]))
        return self.merge_segments(scored, depth), query

    def merge_segments(self, scored: Sequence[tuple[np.ndarray, np.ndarray]], depth: int) -> Ranking:
        """Merge the passages and scores of each segment into one ranking of at most `depth` passages."""
        scores = {
            (number, passage): score
            for number, (rows, values) in enumerate(scored)
            for passage, score in zip(rows.tolist(), values.tolist(), strict=True)
        }
        return dict(list(self.sort_passages(scores).items())[:depth])

    def load_reranker(self, reranker: "AnyPath | Encoder") -> "Encoder":
        return load_reranker(self, reranker)

    def make_hit(
        self,
        position: PassagePosition,
        score: float,
        rankings: Mapping[str, Ranking],
        explained: Mapping[str, Explanation | None],
    ) -> Hit:
        segment, passage = self.segments[position[0]], position[1]
        parts = {
            name: RankingEntry(
                list(ranking).index(position) + 1,
                ranking[position],
                of_query.explain(*position) if (of_query := explained.get(name)) else {},
            )
            for name, ranking in rankings.items()
            if position in ranking
        }
        name, _ = segment.document_position(passage)
        title, text = segment.read_passage(passage)
        start, end = segment.spans[passage].tolist()
        return Hit(name, score, text, start, end, title, parts)
