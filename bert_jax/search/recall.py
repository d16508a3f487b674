"""Measure the recall of approximate search: the share of the truly nearest passages that it finds."""

from collections.abc import Sequence

import numpy as np

from bert_jax.search.index_manifest import Recall
from bert_jax.search.nearest import find_nearest
from bert_jax.search.segment import Segment

AT, QUERIES = 10, 200


def measure_recall(segments: Sequence[Segment]) -> Recall | None:
    """Return the recall, with a sample of passages as queries, or None if there are too few passages. A query's own
    passage is not counted."""
    rows = [
        np.arange(len(segment.order)) if segment.live is None else np.flatnonzero(segment.live)
        for segment in segments
    ]
    owners = np.arange(len(rows)).repeat([len(rows_of_segment) for rows_of_segment in rows])
    if len(owners) <= AT:
        return None
    chosen = np.random.default_rng(0).choice(len(owners), min(QUERIES, len(owners)), replace=False)
    places = list(zip(owners[chosen].tolist(), np.concatenate(rows)[chosen].tolist(), strict=True))
    queries = np.stack([segments[segment].vectors[passage] for segment, passage in places])
    exact, approximate = (best_scores(segments, queries, places, exact=way) for way in (True, False))
    shares = [
        (np.array(there) >= least).sum() / AT
        for there, least in zip(approximate, (scores_of_query[-1] for scores_of_query in exact), strict=True)
    ]
    return Recall(AT, len(places), round(float(np.mean(shares)), 4))


def best_scores(
    segments: Sequence[Segment], queries: np.ndarray, places: Sequence[tuple[int, int]], exact: bool
) -> list[list[float]]:
    """Return the highest scores of each query, without the score of its own passage, in descending order."""
    per_segment = [find_nearest(segment, queries, AT + 1, exact) for segment in segments]
    return [
        sorted(
            (
                score
                for number, results in enumerate(per_segment)
                for passage, score in zip(*(part.tolist() for part in results[query]), strict=True)
                if (number, passage) != place
            ),
            reverse=True,
        )[:AT]
        for query, place in enumerate(places)
    ]
