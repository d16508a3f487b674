"""Measure rankings of documents as trec_eval does.

Scores are compared as float32. Of two documents with equal scores, the one with the greater id comes first.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.metrics.score_sums import ScoreSums

RelevanceGrades = Mapping[str, float]  # document id -> grade; 0 or less: not relevant
MAIN_METRIC = "ndcg@10"
CUTOFFS = {"ndcg": (10,), "mrr": (10,), "map": (100,), "recall": (1, 10, 100), "precision": (10,)}
DEPTH = max(cut for cuts in CUTOFFS.values() for cut in cuts)


def sort_by_score(scores: Mapping[str, float]) -> list[str]:
    """Sort document ids by their scores, best first.

    >>> sort_by_score({"a": 0.5, "b": 0.5, "c": 0.9})
    ['c', 'b', 'a']
    """
    return sorted(scores, key=lambda name: (np.float32(scores[name]), name), reverse=True)


def ranking_metrics(given: Sequence[Sequence[str]], relevant: Sequence[RelevanceGrades]) -> ScoreSums:
    """Score each query's ranking: `given` holds its document ids, best first; `relevant` maps document ids to grades.

    A query without a relevant document cannot be scored and is left out.
    """
    if len(given) != len(relevant):
        raise BertJaxError(f"{len(given)} rankings for {len(relevant)} queries; give each query one")
    judged = [
        (ids, grades)
        for ids, grades in zip(given, relevant, strict=True)
        if any(grade > 0 for grade in grades.values())
    ]
    if not judged:
        raise BertJaxError("no query has a relevant document, so no ranking can be scored")
    names = [f"{name}@{cut}" for name, cuts in CUTOFFS.items() for cut in cuts]
    rows = np.array([[*scores_of_query(ids, grades).values(), 1] for ids, grades in judged], np.float64)
    return ScoreSums(rows, lambda sums: {name: sums[..., i] / sums[..., -1] for i, name in enumerate(names)})


def scores_of_query(ids: Sequence[str], grades: RelevanceGrades) -> dict[str, float]:
    """Compute all metrics of one query, which must have a relevant document."""
    gains = np.array([max(grades.get(name, 0), 0) for name in ids], np.float64)
    ideal = np.sort([max(grade, 0) for grade in grades.values()])[::-1].astype(np.float64)
    right, all_right = gains > 0, int((ideal > 0).sum())
    positions = np.flatnonzero(right) + 1
    of_cut = {
        "ndcg": lambda cut: discount(gains[:cut]) / discount(ideal[:cut]),
        "mrr": lambda cut: 1 / positions[0] if len(positions) and positions[0] <= cut else 0.0,
        "map": lambda cut: (np.arange(1, len(positions) + 1) / positions)[positions <= cut].sum() / all_right,
        "recall": lambda cut: right[:cut].sum() / all_right,
        "precision": lambda cut: right[:cut].sum() / cut,
    }
    return {f"{name}@{cut}": float(of_cut[name](cut)) for name, cuts in CUTOFFS.items() for cut in cuts}


def discount(gains: np.ndarray) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
