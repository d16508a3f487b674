"""MaxSim is the formula's and sentence-transformers', and the products of all tokens are never in memory together."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import max_sim as module
from bert_jax.models.max_sim import max_sim, max_sim_of_own
from tests.support.jaxprs import array_sizes

Q, N, S, T, D = 5, 7, 6, 9, 8
# Products at once, those of all documents, of 3 documents and of 2 queries -> whether the mean is tried.
SIZES = {1 << 21: False, 3 * Q * S * T: True, 2 * S * T: False}


def draw(*shape, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def random_sides(own: bool):
    """Queries and documents with their masks; some tokens tie, and the last document has none that is scored."""
    queries, documents = draw(Q, S, D), draw(*(Q,) * own, N, T, D, seed=1)
    documents[..., 2, 5, :] = documents[..., 2, 3, :]
    random = np.random.RandomState(2)
    query_mask, document_mask = random.rand(Q, S) < 0.7, random.rand(*documents.shape[:-1]) < 0.7
    query_mask[1], document_mask[..., N - 1, :] = False, False
    document_mask[..., 2, [3, 5]] = True
    return queries, query_mask, documents, document_mask


def by_torch(queries, query_mask, documents, document_mask, mean: bool, slopes: np.ndarray):
    """sentence-transformers' scores, and the gradients of queries and documents."""
    torch = pytest.importorskip("torch")
    similarity = pytest.importorskip("sentence_transformers.util.similarity")
    scoring = pytest.importorskip("sentence_transformers.multi_vector_encoder.scoring")
    sides = [torch.tensor(x, requires_grad=True) for x in (queries, documents)]
    masks = {"a_mask": torch.tensor(query_mask), "b_mask": torch.tensor(document_mask)}
    if documents.ndim == 3:
        scores = similarity.maxsim(*sides, **masks, length_normalize=mean)
    else:
        scores = scoring.colbert_kd_scores(*sides, *masks.values(), length_normalize=mean)
    scores.backward(torch.tensor(slopes))
    return scores.detach().numpy(), *(side.grad.numpy() for side in sides)


def compute(own: bool, sides, mean: bool, slopes: np.ndarray):
    score = max_sim_of_own if own else max_sim

    @jax.jit
    def run(queries, query_mask, documents, document_mask):
        scores, back = jax.vjp(lambda q, d: score(q, query_mask, d, document_mask, mean), queries, documents)
        return scores, *back(slopes)

    return jax.device_get(run(*sides))


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["all documents", "own documents"])
def test_scores_and_gradients_are_the_reference_s_in_blocks_of_any_size(own, monkeypatch):
    sides, slopes = random_sides(own), draw(Q, N, seed=3)
    for size, mean in SIZES.items():
        monkeypatch.setattr(module, "PRODUCTS_AT_ONCE", size)
        expected = by_torch(*sides, mean, slopes)
        assert (expected[0][:, N - 1] < -1e8).all() and np.abs(expected[0][:, : N - 1]).max() < 50
        for ours, theirs in zip(compute(own, sides, mean, slopes), expected, strict=True):
            largest = np.abs(np.where(theirs < -1e8, 0, theirs)).max()
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * largest)


@pytest.mark.slow
def test_of_equal_maxima_the_first_has_the_gradient():
    document = np.eye(3, dtype=np.float32)[[0, 1, 1, 2]]
    slope = jax.grad(lambda d: max_sim(document[None, 1:2], jnp.ones((1, 1)), d, jnp.ones((1, 4))).sum())
    assert np.array_equal(slope(document[None])[0], [[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]])


def test_a_token_that_is_masked_has_no_influence_whatever_its_vector_is():
    queries, query_mask, documents, document_mask = random_sides(False)
    expected = max_sim(queries, query_mask, documents, document_mask)
    far = (
        np.where(query_mask[..., None], queries, 1e3),
        query_mask,
        np.where(document_mask[..., None], documents, 1e3),
        document_mask,
    )
    np.testing.assert_allclose(max_sim(*far), expected, rtol=1e-5)


@pytest.mark.parametrize("own", [False, True], ids=["all documents", "own documents"])
def test_the_products_of_all_tokens_are_never_in_memory(own):
    Q, N, S, T, D = 48, 40, 32, 256, 2
    shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, np.float32)  # noqa: E731
    of = (Q, N) if own else (N,)
    score = partial(
        max_sim_of_own if own else max_sim, query_mask=jnp.ones((Q, S)), document_mask=jnp.ones((*of, T))
    )

    def total(queries, documents):
        return score(queries=queries, documents=documents).sum()

    traced = jax.make_jaxpr(jax.value_and_grad(total, (0, 1)))(shape(Q, S, D), shape(*of, T, D))
    assert max(array_sizes(traced.jaxpr)) <= module.PRODUCTS_AT_ONCE < Q * N * S * T / 4
