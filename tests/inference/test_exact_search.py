import numpy as np
import pytest

from bert_jax.inference import exact_search
from bert_jax.metrics.retrieval import sort_by_score


@pytest.mark.parametrize("width", [37, 1000])
@pytest.mark.parametrize("count", [1, 7, 100, 1000])
def test_the_nearest_are_those_of_brute_force(count, width, monkeypatch):
    rng = np.random.default_rng(count)
    queries = rng.integers(-2, 3, (9, 4)).astype(np.float32)  # so coarse that there are many ties
    documents = rng.integers(-2, 3, (200, 4)).astype(np.float32)
    ids = [f"doc {n}" for n in rng.permutation(200)]
    without = [np.flatnonzero(rng.random(200) < share) for share in np.linspace(0, 1, 9)]
    monkeypatch.setattr(exact_search, "BLOCK", 150)
    monkeypatch.setattr(exact_search, "WIDTH", width)
    found = exact_search.search_exact(queries, documents, ids, count, without)
    for query, hidden, (order, scores) in zip(queries, without, found, strict=True):
        products = documents @ query
        seen = [n for n in range(200) if n not in hidden]
        expected = sort_by_score({ids[n]: products[n] for n in seen})[:count]
        assert [ids[i] for i in order] == expected
        assert scores.tolist() == products[order].tolist()
    numbers = [f"{n:03}" for n in range(200)]
    for given in zip(
        *(exact_search.search_exact(queries, documents, x, count) for x in (None, numbers)), strict=True
    ):
        np.testing.assert_array_equal(given[0][0], given[1][0])
