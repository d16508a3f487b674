"""Rankings are judged as trec_eval judges them, and the nearest documents are those of brute force."""

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.metrics import retrieval

MEASURES = {"ndcg": "ndcg_cut_{}", "map": "map_cut_{}", "recall": "recall_{}", "precision": "P_{}"}


def random_run(seed: int):
    """(scores, judgements) of a few queries, with ties, grades, documents that nobody judged or found."""
    rng = np.random.default_rng(seed)
    names = [f"d{n}" for n in range(300)]
    run = {
        f"q{q}": {str(name): float(rng.integers(0, 40) / 8) for name in rng.choice(names, 250, replace=False)}
        for q in range(8)
    }
    judged = {
        query: {str(name): int(rng.integers(-1, 4)) for name in rng.choice(names, 30, replace=False)}
        for query in run
    }
    judged["q7"] = dict.fromkeys(judged["q7"], 0)  # nothing is relevant
    return run, judged


@pytest.mark.parametrize("seed", range(5))
def test_measures_are_those_of_trec_eval(seed):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run, judged = random_run(seed)
    asked = {f"{theirs.format(cut)}" for ours, theirs in MEASURES.items() for cut in retrieval.CUTOFFS[ours]}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {*asked, "recip_rank"})
    theirs = evaluator.evaluate(run)
    for query in list(run)[:7]:
        found = retrieval.sort_by_score(run[query])
        ours = retrieval.scores_of_query(found[: retrieval.DEPTH], judged[query])
        for name, cuts in retrieval.CUTOFFS.items():
            for cut in cuts:
                if name == "mrr":
                    expected = theirs[query]["recip_rank"]
                    expected = expected if expected >= 1 / cut else 0
                else:
                    expected = theirs[query][MEASURES[name].format(cut)]
                assert ours[f"{name}@{cut}"] == pytest.approx(expected, abs=1e-12), name
    means = retrieval.ranking_metrics(
        [retrieval.sort_by_score(run[q]) for q in run], list(judged.values())
    ).scores
    kept = [theirs[query]["ndcg_cut_10"] for query in list(run)[:7]]
    assert means["ndcg@10"] == pytest.approx(np.mean(kept), abs=1e-12), (
        "a query without an answer is left out"
    )


def test_scores_are_compared_as_float32_and_greater_ids_come_first():
    assert retrieval.sort_by_score({"a": 1.0, "b": 1.0 + 1e-9, "c": 1.0, "d": 0.5}) == ["c", "b", "a", "d"]


def test_rankings_that_cannot_be_judged_are_refused():
    with pytest.raises(BertJaxError, match="1 rankings"):
        retrieval.ranking_metrics([["a"]], [{"a": 1}, {"b": 1}])
    with pytest.raises(BertJaxError, match="relevant"):
        retrieval.ranking_metrics([["a"]], [{"a": 0}])
