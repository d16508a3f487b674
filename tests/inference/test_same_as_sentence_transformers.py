"""The same calls give the same arrays as in sentence-transformers, or are refused in words."""

from itertools import product

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from tests.support.minilm import MINILM, varied_texts

pytestmark = [pytest.mark.long, pytest.mark.optimized]
PROMPTS = {"query": "query: ", "document": "passage: "}
TEXTS = varied_texts(24)
INPUTS = {
    "one text": TEXTS[3],
    "a list": TEXTS,
    "a list of one": TEXTS[:1],
    "an array": np.array(TEXTS[:5]),
    "empty texts": ["", " "],
}
CHOICES = {
    "prompt_name": (None, "query"),
    "prompt": (None, "about: "),
    "batch_size": (1, 7, 32),
    "normalize_embeddings": (False, True),
    "truncate_dim": (None, 64),
    "show_progress_bar": (False,),
}
REFUSED = (
    {"convert_to_tensor": True},
    {"convert_to_numpy": False},
    {"precision": "int8"},
    {"precision": "binary"},
    {"output_value": "token_embeddings"},
    {"device": "cpu"},
)


@pytest.fixture(scope="module")
def embedders(tmp_path_factory):
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(MINILM, device="cpu", prompts=PROMPTS)
    path = tmp_path_factory.mktemp("embedder") / "model"
    theirs.save(str(path))
    return bert_jax.Embedder.load(path), theirs


def assert_same(ours, theirs) -> None:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", INPUTS)
def test_vectors(embedders, name):
    ours, theirs = embedders
    given = INPUTS[name]
    for values in product(*CHOICES.values()):
        settings = dict(zip(CHOICES, values, strict=True))
        if settings["prompt"] and settings["prompt_name"]:
            continue
        assert_same(ours.encode(given, **settings), theirs.encode(given, **settings))
    assert_same(ours.encode_query(given), theirs.encode_query(given))
    assert_same(ours.encode_document(given), theirs.encode_document(given))


def test_what_is_asked_of_an_embedder(embedders):
    ours, theirs = embedders
    assert ours.get_embedding_dimension() == theirs.get_embedding_dimension() == 384
    assert ours.max_seq_length == theirs.max_seq_length and ours.prompts == theirs.prompts
    vectors = theirs.encode(TEXTS)
    assert_same(ours.similarity(vectors, vectors[:5]), theirs.similarity(vectors, vectors[:5]).numpy())
    for refused in REFUSED:
        with pytest.raises(BertJaxError, match=next(iter(refused))):
            ours.encode(TEXTS, **refused)


@pytest.fixture(scope="module")
def rerankers(tmp_path_factory):
    """A cross-encoder of one random logit on MiniLM."""
    library = pytest.importorskip("sentence_transformers")
    path = tmp_path_factory.mktemp("reranker") / "model"
    bert_jax.load(MINILM, head="classify", labels=["LABEL_0"]).save(path)
    theirs = library.CrossEncoder(str(path), device="cpu")
    saved = tmp_path_factory.mktemp("reranker") / "saved"
    theirs.save_pretrained(str(saved))
    return bert_jax.Reranker.load(saved), theirs


@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_scores(rerankers, batch_size):
    ours, theirs = rerankers
    pairs = [(TEXTS[0], text) for text in TEXTS[1:]]
    for given in (pairs, pairs[:1], pairs[0], [list(pair) for pair in pairs]):
        expected = theirs.predict(given, batch_size=batch_size)
        found = ours.predict(given, batch_size=batch_size)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        assert np.shape(found) == np.shape(expected)
        assert np.asarray(found).dtype == np.asarray(expected).dtype


@pytest.mark.parametrize(("top_k", "return_documents"), [(None, False), (3, True), (100, False)])
def test_rankings(rerankers, top_k, return_documents):
    ours, theirs = rerankers
    settings = {"top_k": top_k, "return_documents": return_documents}
    expected = theirs.rank(TEXTS[0], TEXTS[1:], **settings)
    found = ours.rank(TEXTS[0], TEXTS[1:], **settings)
    assert [hit["corpus_id"] for hit in found] == [hit["corpus_id"] for hit in expected]
    assert [hit.get("text") for hit in found] == [hit.get("text") for hit in expected]
    assert [hit.keys() for hit in found] == [hit.keys() for hit in expected]
    np.testing.assert_allclose(
        [hit["score"] for hit in found], [hit["score"] for hit in expected], rtol=0, atol=1e-5
    )
