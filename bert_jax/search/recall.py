"""How many of the nearest passages an approximate search finds, of those that an exact one finds."""

from collections.abc import Sequence

import numpy as np

from bert_jax.search.manifest import Recall
from bert_jax.search.nearest import nearest_in
from bert_jax.search.segment import Segment

AT, QUERIES = 10, 200


def measured(segments: Sequence[Segment]) -> Recall | None:
    """With passages as queries, none of which counts for itself; None where there are too few passages."""
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
    exact, approximate = (scores(segments, queries, places, exact=way) for way in (True, False))
    shares = [
        (np.array(there) >= least).sum() / AT
        for there, least in zip(approximate, (scores_of_query[-1] for scores_of_query in exact), strict=True)
    ]
    return Recall(AT, len(places), round(float(np.mean(shares)), 4))


def scores(
    segments: Sequence[Segment], queries: np.ndarray, places: Sequence[tuple[int, int]], exact: bool
) -> list[list[float]]:
    """The highest scores of each query's passages, its own aside."""
    per_segment = [nearest_in(segment, queries, AT + 1, exact) for segment in segments]
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
