"""Find passages by their vectors: exactly, or among candidates.

Candidates come from products of many rows at once. The last bits of such a score depend on the other rows, so all
candidates are scored again in float64, each on its own: equal vectors then have equal scores, wherever they are stored.
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.inference.exact_search import top_k
from bert_jax.search.candidates import binary_scores, find_best_rows, find_hnsw_candidates
from bert_jax.search.fixed_encodings import encodings_of
from bert_jax.search.index_manifest import TOKEN_ROWS, Recall
from bert_jax.search.late_interaction import TokenQuery
from bert_jax.search.segment import Segment

MIN_PASSAGES = 4096  # a segment with fewer passages is searched exactly, whatever the settings
BINARY_CANDIDATES = 32  # per requested passage
TOKEN_CANDIDATES = 400  # passages whose MaxSim is computed, if no more are asked for
RECALL_AT, RECALL_QUERIES = 10, 200  # passages and queries by which recall is measured
NOISE = 1e-5  # the error that a score in float32 may have


def find_nearest(
    segment: Segment, queries: np.ndarray, count: int, exact: bool = False
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for each query [Q, D], the `count` passages with the highest inner products, best first, and these
    products. With `exact`, compare the query with all passages, whatever the settings."""
    candidates = find_exact_candidates if exact else find_candidates
    results = []
    for query, rows in zip(queries.astype(np.float64), candidates(segment, queries, count), strict=True):
        scores = (segment.vectors[rows].astype(np.float64) * query).sum(-1).astype(np.float32)
        best = top_k(scores, segment.order[rows], count)
        results.append((rows[best], scores[best]))
    return results


def find_candidates(segment: Segment, queries: np.ndarray, count: int) -> list[np.ndarray]:
    if segment.hnsw is not None:
        positions = find_hnsw_candidates(segment.hnsw, queries, segment.live, count)
        wanted = min(count, len(segment.order) if segment.live is None else int(segment.live.sum()))
        if all(len(rows) >= wanted for rows in positions):
            return positions
    if (bits := segment.bits) is not None:
        scores_of = binary_scores(queries, bits)
        return find_best_rows(scores_of, len(queries), len(bits), segment.live, BINARY_CANDIDATES * count)
    return find_exact_candidates(segment, queries, count)


def find_exact_candidates(segment: Segment, queries: np.ndarray, count: int) -> list[np.ndarray]:
    vectors = segment.vectors
    return find_best_rows(
        lambda block: queries @ vectors[block].T, len(queries), len(vectors), segment.live, count, NOISE
    )


def find_by_tokens(
    query: TokenQuery, segments: Sequence[Segment], count: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, of each segment, the passages that are among the `count` with the highest MaxSim, best first, and it.

    MaxSim is computed for the candidates, those that are nearest in all segments together."""
    encoding = encodings_of(query.vectors.shape[1]).encode_query(query.vectors)[None]
    positions, nearness = list[np.ndarray](), list[np.ndarray]()
    for segment in segments:
        bits, size = segment.encodings, len(segment.order)
        (rows,) = find_best_rows(
            binary_scores(encoding, bits), 1, size, segment.live, max(count, TOKEN_CANDIDATES)
        )
        positions.append(rows)
        nearness.append(binary_scores(encoding, bits[rows])(slice(0, len(rows)))[0])
    every = np.concatenate([np.empty(0, np.float32), *nearness])
    minimum, results = least_of_best(every, max(count, TOKEN_CANDIDATES)), []
    for segment, rows, near in zip(segments, positions, nearness, strict=True):
        candidates = rows[near >= minimum]
        scores = query.score(segment.rows[TOKEN_ROWS], candidates)
        best = top_k(scores, segment.order[candidates], count)
        results.append((candidates[best], scores[best]))
    return results


def least_of_best(scores: np.ndarray, count: int) -> float:
    """
    >>> least_of_best(np.array([3, 1, 2]), 2), least_of_best(np.array([3, 1]), 2)
    (2.0, -inf)
    """
    return float(np.partition(scores, -count)[-count]) if len(scores) > count else -np.inf


def measure_recall(segments: Sequence[Segment]) -> Recall | None:
    """Return the recall of approximate search, with a sample of passages as queries, or None if there are too few. A
    query's own passage is not counted."""
    rows = [
        np.arange(len(segment.order)) if segment.live is None else np.flatnonzero(segment.live)
        for segment in segments
    ]
    owners = np.arange(len(rows)).repeat([len(rows_of_segment) for rows_of_segment in rows])
    if len(owners) <= RECALL_AT:
        return None
    chosen = np.random.default_rng(0).choice(len(owners), min(RECALL_QUERIES, len(owners)), replace=False)
    positions = list(zip(owners[chosen].tolist(), np.concatenate(rows)[chosen].tolist(), strict=True))
    queries = np.stack([segments[segment].vectors[passage] for segment, passage in positions])
    exact, approximate = (best_scores(segments, queries, positions, exact=way) for way in (True, False))
    shares = [
        (np.array(there) >= minimum).sum() / RECALL_AT
        for there, minimum in zip(
            approximate, (scores_of_query[-1] for scores_of_query in exact), strict=True
        )
    ]
    return Recall(RECALL_AT, len(positions), round(float(np.mean(shares)), 4))


def best_scores(
    segments: Sequence[Segment], queries: np.ndarray, positions: Sequence[tuple[int, int]], exact: bool
) -> list[list[float]]:
    """Return the highest scores of each query, without the score of its own passage, in descending order."""
    per_segment = [find_nearest(segment, queries, RECALL_AT + 1, exact) for segment in segments]
    return [
        sorted(
            (
                score
                for number, results in enumerate(per_segment)
                for passage, score in zip(*(part.tolist() for part in results[query]), strict=True)
                if (number, passage) != position
            ),
            reverse=True,
        )[:RECALL_AT]
        for query, position in enumerate(positions)
    ]
