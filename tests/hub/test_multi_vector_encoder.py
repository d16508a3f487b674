"""Multi-vector encoders: what `sentence-transformers` saved we open, what we save it opens, with the same vectors of
tokens; directories of PyLate and Stanford open as they do there."""

import json
import string
from dataclasses import replace

import numpy as np
import pytest

import bert_jax
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion, TokenPooling
from bert_jax.inference.token_pooling import pool_tokens
from tests.support.multi_vector_models import (
    NO_PROMPTS,
    PLAIN,
    TOKEN_TEXTS,
    write_multi_vector_model,
    write_stanford,
)
from tests.support.small_models import load_error

PROMPTED = replace(PLAIN, prompts={"query": "the ", "document": "on "})
SETTINGS = {
    "plain": replace(PLAIN, query_length=7, document_length=11),
    "prompts": replace(PROMPTED, similarity="meanmaxsim"),
    "fixed": replace(
        PROMPTED, expansion=QueryExpansion(8), skiplist=("the",), skiplist_tasks=("query", "document")
    ),
    "attended": replace(PLAIN, expansion=QueryExpansion(8, attend=True), skiplist=(".", "zebra")),
    "min": replace(PLAIN, query_length=10, expansion=QueryExpansion(6, "min", token="mat")),
    "kept": replace(PLAIN, kept_ids=(5, 6), normalize=False),
    "no layer": MultiVectorSettings(max_length=12, prompts=NO_PROMPTS),
}


@pytest.fixture(scope="module")
def multi_vector_encoder():
    """The class, whose import takes seconds."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import MultiVectorEncoder

    return lambda path: MultiVectorEncoder(str(path), device="cpu")


def sort_rows(vectors: np.ndarray) -> np.ndarray:
    return vectors[np.lexsort(vectors.round(4).T)]


def assert_same_vectors(ours, theirs):
    texts, vectors = TOKEN_TEXTS, {}
    for encode in ("encode_query", "encode_document"):
        expected = getattr(theirs, encode)(texts, convert_to_numpy=True, show_progress_bar=False)
        vectors[encode] = getattr(ours, encode)(texts)
        for text, own, other in zip(texts, vectors[encode], expected, strict=True):
            assert own.shape == other.shape, (encode, text)
            np.testing.assert_allclose(own, other, atol=1e-5, err_msg=f"{encode} {text}")
        alone = getattr(ours, encode)(texts[0])
        np.testing.assert_allclose(alone, vectors[encode][0], atol=1e-5)
    queries, documents = vectors.values()
    scores = theirs.similarity(*(theirs.encode_query(texts), theirs.encode_document(texts))).numpy()
    np.testing.assert_allclose(ours.similarity(queries, documents), scores, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were truncated|.*was truncated")
@pytest.mark.parametrize("name", SETTINGS)
def test_both_programs_open_what_the_other_saved(name, multi_vector_encoder, tmp_path):
    settings = SETTINGS[name]
    write_multi_vector_model(tmp_path / "ours", settings)
    ours, theirs = bert_jax.load(tmp_path / "ours"), multi_vector_encoder(tmp_path / "ours")
    assert type(ours) is bert_jax.MultiVectorEmbedder and ours.layout.multi_vector == settings
    assert_same_vectors(ours, theirs)
    theirs.save(str(tmp_path / "theirs"))
    again = bert_jax.load(tmp_path / "theirs")
    assert again.layout.multi_vector == settings
    again.save(tmp_path / "again")
    assert_same_vectors(again, multi_vector_encoder(tmp_path / "again"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "pooling", [TokenPooling(2.0), TokenPooling(3.0, 0, False, ("query", "document"))], ids=str
)
def test_pooled_tokens_are_those_of_sentence_transformers(pooling, multi_vector_encoder, tmp_path):
    import torch

    write_multi_vector_model(tmp_path / "plain", PLAIN)
    write_multi_vector_model(tmp_path / "ours", replace(PLAIN, pooling=pooling))
    ours, theirs = bert_jax.load(tmp_path / "ours"), multi_vector_encoder(tmp_path / "ours")
    theirs.save(str(tmp_path / "theirs"))
    assert bert_jax.load(tmp_path / "theirs").layout.multi_vector == replace(PLAIN, pooling=pooling)
    text, plain = "the cat sat on the mat .", bert_jax.load(tmp_path / "plain")
    for task in ("query", "document"):
        fewer = len(ours.encode(text, task=task)) < len(plain.encode(text, task=task))
        assert fewer == (task in pooling.tasks)
    # Vectors of other directions than those of a random model, which are so alike that rounding decides.
    for count in (1, 2, 9, 30):
        vectors = np.random.default_rng(count).standard_normal((count, 6)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        expected = theirs[-1].pool_one(torch.from_numpy(vectors)).numpy()
        np.testing.assert_allclose(sort_rows(pool_tokens(vectors, pooling)), sort_rows(expected), atol=1e-6)


def write_pylate(path, **changes):
    """Write a directory as PyLate saves it: two modules, and its own keys."""
    write_multi_vector_model(path, PLAIN)
    modules = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    listed = [{"idx": n, "name": str(n), "path": p, "type": kind} for n, (p, kind) in enumerate(modules)]
    (path / "modules.json").write_text(json.dumps(listed))
    dense = {
        "in_features": 8, "out_features": 6, "bias": False, "use_residual": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }  # fmt: skip
    (path / "1_Dense/config.json").write_text(json.dumps(dense))
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 11, "do_lower_case": false}')
    config = {
        "model_type": "ColBERT", "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "MaxSim",
        "query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 9, "document_length": 11,
        "attend_to_expansion_tokens": False, "skiplist_words": list(string.punctuation), "do_query_expansion": True,
    }  # fmt: skip
    (path / "config_sentence_transformers.json").write_text(json.dumps(config | changes))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were truncated|.*was truncated")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attend_to_expansion_tokens": True, "skiplist_words": []},
        {"do_query_expansion": False, "prompts": {"query": "[unused0]the "}},
    ],
    ids=["usual", "attended", "without expansion"],
)
def test_directories_of_pylate_open(changes, multi_vector_encoder, tmp_path):
    write_pylate(tmp_path / "pylate", **changes)
    ours, theirs = bert_jax.load(tmp_path / "pylate"), multi_vector_encoder(tmp_path / "pylate")
    assert 12 in ours.tokenizer.ids(["[unused0]the cat"])[0]  # the marker is one token
    assert_same_vectors(ours, theirs)
    ours.save(tmp_path / "saved")
    assert_same_vectors(bert_jax.load(tmp_path / "saved"), multi_vector_encoder(tmp_path / "saved"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were truncated|.*was truncated")
@pytest.mark.parametrize(
    "metadata",
    [
        {"query_maxlen": 9, "doc_maxlen": 11, "mask_punctuation": True},
        {"query_maxlen": 9, "doc_maxlen": 10, "mask_punctuation": False, "attend_to_mask_tokens": True,
         "query_token_id": "[unused1]", "doc_token_id": "[unused0]"},
    ],
    ids=["usual", "attended"],
)  # fmt: skip
def test_directories_of_stanford_open(metadata, multi_vector_encoder, tmp_path):
    write_stanford(tmp_path / "stanford", metadata)
    ours, theirs = bert_jax.load(tmp_path / "stanford"), multi_vector_encoder(tmp_path / "stanford")
    assert ours.get_embedding_dimension() == 6
    assert_same_vectors(ours, theirs)
    ours.save(tmp_path / "saved")
    assert_same_vectors(bert_jax.load(tmp_path / "saved"), multi_vector_encoder(tmp_path / "saved"))


def test_stanford_without_its_own_file_has_its_defaults(tmp_path):
    write_stanford(tmp_path / "stanford", None)
    settings = bert_jax.load(tmp_path / "stanford").layout.multi_vector
    assert settings.expansion == QueryExpansion(32) and settings.skiplist == tuple(string.punctuation)
    assert settings.prompts == {"query": "[unused0] ", "document": "[unused1] "}


def test_a_document_of_punctuation_only_has_no_vectors_and_comes_last(tmp_path):
    write_multi_vector_model(tmp_path / "model", replace(PLAIN, skiplist=(".", "[CLS]", "[SEP]")))
    model = bert_jax.load(tmp_path / "model")
    assert model.encode_document("...").shape == (0, 6)
    assert [hit["corpus_id"] for hit in model.rank("the cat", ["...", "cat", "mat"])][-1] == 0


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", [{"type": "x.Transformer", "path": ""}, {"type": "x.Other", "path": "1_Dense"},
         {"type": "x.MultiVectorMask", "path": "2_MultiVectorMask"}], "modules Transformer, Other, MultiVectorMask"),
        ("modules.json", [{"type": "x.Transformer", "path": ""}, {"type": "x.Dense", "path": "../out"},
         {"type": "x.MultiVectorMask", "path": "2_MultiVectorMask"}], "outside of"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "most", "length": 8}}, "strategy"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "min"}}, "no number of tokens"),
        ("1_Dense/config.json", {"in_features": 8, "out_features": 6, "use_residual": True}, "residual"),
        ("1_Dense/config.json", {"in_features": 8, "out_features": 6, "bias": False,
         "activation_function": "torch.nn.modules.linear.Identity", "module_input_name": "sentence_embedding"},
         "Dense of sentence_embedding"),
        ("2_MultiVectorMask/config.json", {"skiplist_words": 3}, "skiplist_words"),
    ],
)  # fmt: skip
def test_a_directory_that_is_not_understood_is_refused_in_one_line(file, content, message, tmp_path):
    write_multi_vector_model(tmp_path / "model")
    (tmp_path / "model" / file).write_text(json.dumps(content))
    error = load_error(tmp_path / "model")
    assert message in error and "\n" not in error
