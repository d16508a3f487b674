"""What Python entry points compute of texts, vectors and models at the edge of what they can take."""

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from tests.hostile import material
from tests.hostile.material import CLASSES, OPENS_TOO


def test_every_class_is_tried():
    of_use = {value for value in map(bert_jax.__getattr__, bert_jax.__all__) if hasattr(value, "load")}
    assert of_use == {*CLASSES.values()}


@pytest.mark.slow
def test_one_directory_in_the_classes_that_open_it(models):
    """What every class computes of a model is what its own class computes, and vectors need no more than an encoder."""
    for name, of_use in CLASSES.items():
        assert type(models[name]) is of_use and type(of_use.load(models["paths"][name])) is of_use
    for name in ("classify", "mlm"):
        plain = bert_jax.Encoder.load(models["paths"][name])
        np.testing.assert_array_equal(plain.encode("w1 w2"), bert_jax.Encoder.encode(models[name], "w1 w2"))
    pair = ("w1", "w2 w3")
    for name, of_use in OPENS_TOO:
        other = of_use.load(models["paths"][name])
        assert other.predict(pair) == pytest.approx(models[name].predict(pair), abs=1e-6)


@pytest.mark.slow
def test_an_embedder_with_another_pooling_is_saved_with_it(models, tmp_path):
    for name, pooling in (("embed", "cls"), ("classify", "mean")):
        opened = bert_jax.Embedder.load(models["paths"][name], pooling=pooling)
        vector = opened.encode("w1 w2")
        np.testing.assert_array_equal(opened.with_params(opened.params).encode("w1 w2"), vector)
        state = bert_jax.Encoder.encode(models[name], "w1 w2", pooling=pooling, normalize_embeddings=True)
        np.testing.assert_allclose(vector, state, atol=1e-6)
        opened.save(tmp_path / name)
        saved = bert_jax.load(tmp_path / name)
        assert type(saved) is bert_jax.Embedder and saved.prompts == opened.prompts
        np.testing.assert_array_equal(saved.encode("w1 w2"), vector)


@pytest.mark.slow
def test_texts_at_the_edge_have_results(models):
    """No text, one, a pair, a stream, columns, and texts of nothing that the vocabulary knows."""
    embed, static, rank, classify, labels = (
        models[name] for name in ("embed", "static", "rank", "classify", "labels")
    )
    odd = ["", " ", "\0", "\ud800", "é" * 40, "w1\n\tw2"]
    for method in (embed.encode, embed.encode_query, static.encode):
        assert method([]).shape == (0, 32) and method([], truncate_dim=3).shape == (0, 3)
        assert method("w1").shape == (32,) and method(("w1", "w2")).shape == (2, 32)
        assert np.isfinite(method(odd, show_progress_bar=False)).all()
        np.testing.assert_allclose(np.stack(list(method(iter(odd), batch_size=2))), method(odd), atol=1e-5)
    assert [*embed.encode(iter([]))] == [] == classify.predict([]) == classify.classify([])
    assert classify.predict_proba([]).shape == (0, 2) == labels.predict([]).shape
    assert rank.predict([]).shape == (0,) and rank.rank("w1", []) == []
    odd = odd[2:]  # a classifier refuses blank texts
    assert {*classify.predict(odd)} <= {*material.LABELS} and labels.predict(odd).shape == (len(odd), 2)
    np.testing.assert_allclose(classify.predict_proba(odd).sum(-1), 1, atol=1e-5)
    assert models["number"].predict([]).shape == (0,) and isinstance(models["number"].predict("w1"), float)
    pairs = [("w1", "w2"), ["w1", "w3 w4"]]
    scores = rank.predict(pairs)
    assert scores.shape == (2,) and [*rank.predict(iter(pairs))] == pytest.approx(scores, abs=1e-6)
    assert rank.predict([*pairs[0]]) == rank.predict([np.array(pairs[0])])[0] == rank.predict(pairs[0])
    ranked = rank.rank("w1", np.array(["w2", "w3 w4"]), top_k=9, return_documents=True)
    assert {one["corpus_id"]: one["score"] for one in ranked} == pytest.approx(
        dict(enumerate(scores)), abs=1e-6
    )
    assert [one["text"] for one in ranked] == [["w2", "w3 w4"][one["corpus_id"]] for one in ranked]


@pytest.mark.slow
def test_vectors_of_every_shape_are_compared(models):
    embed, texts = models["embed"], ["w1 w2", "w3", "w4 w5 w6"]
    vectors = embed.encode(texts)
    cosines = embed.similarity(texts, texts)
    np.testing.assert_allclose(np.diag(cosines), 1, atol=1e-6)
    for side in (vectors, [*vectors], [*embed.encode(iter(texts))], 7 * vectors, jnp.array(vectors), iter(texts),
                 tuple(texts), np.array(texts), vectors.tolist(), tuple(vectors), iter(vectors)):  # fmt: skip
        np.testing.assert_allclose(embed.similarity(side, vectors), cosines, atol=1e-5)
    rounded = jnp.array(vectors, jnp.bfloat16)
    for side in (rounded, np.asarray(rounded), [*rounded]):
        np.testing.assert_allclose(embed.similarity(vectors, side), cosines, atol=2e-2)
    with pytest.raises(BertJaxError, match="embeddings2 must hold texts or real numbers, not complex64"):
        embed.similarity(vectors, vectors.astype(np.complex64))
    with pytest.raises(BertJaxError, match="embeddings1 is no array or list of vectors of one size"):
        embed.similarity([[0.5], [0.5, 1.0]], vectors)
    np.testing.assert_allclose(embed.similarity(vectors[0], "w3"), cosines[:1, 1:2], atol=1e-5)
    short = embed.encode(texts, truncate_dim=8)
    assert embed.similarity(short, short[:2]).shape == (3, 2)
    assert embed.similarity(np.zeros(32), texts).tolist() == [[0, 0, 0]]
    assert embed.similarity(np.zeros((0, 32)), texts).shape == (0, 3)
    assert embed.similarity([], texts).shape == (0, 3)
