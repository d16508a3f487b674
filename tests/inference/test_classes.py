"""`bert_jax.load` returns the class for what a directory is, and each class opens only what it can use."""

import dataclasses

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.export.static_directory import export_static
from bert_jax.hub import model_directory as hub
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion
from bert_jax.hub.sentence_transformers import CROSS_ENCODER, EmbedderSettings
from bert_jax.hub.sparse_encoder import SparseSettings
from bert_jax.inference.encoder import CLASS_HEADS
from bert_jax.inference.model_classes import CLASSES
from bert_jax.models.heads import HEADS
from tests.support.m3_models import write_small_m3
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, write_model

# Class -> heads and labels of a model that is opened as it.
MODELS = {
    "Classifier": (("classify",), ("bad", "good")),
    "Tagger": (("tag",), ("O", "B-X")),
    "QuestionAnswerer": (("answer",), ()),
    "MaskedLM": (("mlm", "nsp"), ()),
    "Encoder": ((), ()),
}


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Class -> the directory of a model that is opened as it."""
    root = tmp_path_factory.mktemp("models")
    for name, (heads, labels) in MODELS.items():
        write_model(root / name, heads=heads, labels=labels)
    plain, one = bert_jax.load(root / "Encoder"), write_and_load(root / "one")
    embedder = EmbedderSettings(prompts={"query": "the ", "document": "on "})
    save(root / "Embedder", plain, embedder=embedder)
    masked = bert_jax.load(root / "MaskedLM")
    save(root / "SparseEmbedder", masked, sparse=SparseSettings())
    save(root / "MultiVectorEmbedder", plain, multi_vector=MultiVectorSettings(expansion=QueryExpansion(6)))
    write_small_m3(root / "M3Embedder")
    save(root / "Reranker", one, hf_config=one.layout.hf_config | CROSS_ENCODER)
    export_static(root / "Embedder", root / "StaticEmbedder")
    return {name: root / name for name in CLASSES}


def write_and_load(path, labels=("LABEL_0",)):
    write_model(path, heads=("classify",), labels=labels)
    return bert_jax.load(path)


def save(path, model, **changes):
    """Save a model with a changed layout."""
    with hub.atomic_model_directory(path) as new:
        hub.save_model(new, dataclasses.replace(model.layout, **changes), model.params, model.tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_each_class_opens_its_own_directory_and_refuses_others(directories, name, tmp_path):
    model = bert_jax.load(directories[name])
    assert type(model) is CLASSES[name] is getattr(bert_jax, name) and repr(model).startswith(
        f"<{name} of {'static' if name == 'StaticEmbedder' else 'bert'}"
    )
    assert type(CLASSES[name].load(directories[name])) is CLASSES[name]
    model.save(tmp_path / "saved")
    assert type(bert_jax.load(tmp_path / "saved")) is CLASSES[name]
    assert type(model.with_params(model.params)) is CLASSES[name]
    for other, model_class in CLASSES.items():
        if model_class.accepts(model.layout):
            continue
        with pytest.raises(BertJaxError) as refused:
            model_class.load(directories[name])
        message = str(refused.value)
        assert "\n" not in message
        if other != "Embedder":
            assert f"is not opened by bert_jax.{other} but by bert_jax.{name}" in message
        advice = {"Tagger": "--config tag --config.init", "MaskedLM": "--config pretrain --config.init"}
        assert advice.get(other, "") in message


@pytest.mark.slow
def test_a_tuple_is_texts_for_vectors_and_a_pair_elsewhere(directories):
    pair = "the cat", "the mat"
    model = bert_jax.load(directories["Classifier"])
    assert model.encode(pair).shape == (2, 8) and model.encode([pair]).shape == (1, 8)
    assert model.predict_proba(pair).shape == (2,) and len(model.hidden_states(pair)) == 7


@pytest.mark.slow
@pytest.mark.parametrize("heads", [("classify",), ("compare_mean",)])
def test_a_model_with_one_token_type_reads_no_pair_in_one_row(tmp_path, heads):
    config = SMALL_CONFIG.replace(type_vocab_size=1)
    write_model(tmp_path, config, heads=heads, labels=("bad", "good"))
    model = bert_jax.load(tmp_path)
    if heads == ("compare_mean",):  # it reads the texts of a pair one by one
        assert model.predict(("the cat", "the mat")) in ("bad", "good")
    else:
        assert model.predict("the cat") in ("bad", "good")
        with pytest.raises(BertJaxError, match="one token type .type_vocab_size 1., and .* pair"):
            model.predict(["the cat", ("the cat", "the mat")])


def test_every_head_has_a_class():
    heads = {head for heads in CLASS_HEADS.values() for head in heads}
    without = set(HEADS) - heads
    assert without == {"nsp", "sop", "replaced", "replaced_in_context"}, "of pre-training, beside others"
    assert set(CLASS_HEADS) < set(CLASSES)


@pytest.mark.slow
def test_an_embedder_takes_the_arguments_of_sentence_transformers(directories):
    model, plain = bert_jax.load(directories["Embedder"]), bert_jax.load(directories["Encoder"])
    vectors = model.encode(SMALL_TEXTS, batch_size=2, show_progress_bar=False, convert_to_numpy=True)
    means = plain.encode(SMALL_TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(vectors, means, atol=1e-5)
    written = plain.encode([f"on {text}" for text in SMALL_TEXTS], normalize_embeddings=True)
    np.testing.assert_allclose(model.encode_document(SMALL_TEXTS), written, atol=1e-5)
    np.testing.assert_allclose(model.encode(SMALL_TEXTS, prompt="on "), written, atol=1e-5)
    short = model.encode(SMALL_TEXTS, truncate_dim=4)
    np.testing.assert_allclose(short, vectors[:, :4], atol=1e-6)
    short /= np.linalg.norm(short, axis=1, keepdims=True)
    unit = model.encode(SMALL_TEXTS, truncate_dim=4, normalize_embeddings=True)
    np.testing.assert_allclose(unit, short, atol=1e-5)
    assert model.get_sentence_embedding_dimension() == 8
    assert model.max_seq_length == 16 and model.prompts == {"query": "the ", "document": "on "}
    np.testing.assert_allclose(model.similarity(vectors, SMALL_TEXTS), vectors @ vectors.T, atol=1e-5)
    for argument, message in {
        "convert_to_tensor": "torch.from_numpy makes a tensor",
        "device": "JAX chooses the device",
        "precision": "only 'float32'",
        "output_value": "hidden_states gives a vector for each token",
        "prompt_name": "prompt",
        "batch_size": "batch_size",
    }.items():
        with pytest.raises(BertJaxError, match=message):
            model.encode(SMALL_TEXTS, **{argument: "odd"})


def test_a_label_that_could_not_be_saved_is_refused(encoder_path):
    with pytest.raises(BertJaxError, match="hold a lone surrogate"):
        bert_jax.load(encoder_path, head="classify", labels=["a\ud800", "b"])


@pytest.mark.slow
def test_a_reranker_takes_the_arguments_of_cross_encoders(directories):
    model = bert_jax.load(directories["Reranker"])
    documents = ["the mat", "cats .", "the cat sat"]
    scores = model.predict([("the cat", document) for document in documents])
    assert scores.shape == (3,) and scores.dtype == np.float32
    ranked = model.rank("the cat", documents, top_k=2, return_documents=True)
    assert [hit["corpus_id"] for hit in ranked] == np.argsort(-scores, kind="stable")[:2].tolist()
    assert [hit["text"] for hit in ranked] == [documents[hit["corpus_id"]] for hit in ranked]
    assert model.rank("the cat", []) == []
    with pytest.raises(BertJaxError, match="the query is blank"):
        model.rank(" ", documents)
    of_labels = {name for name in vars(bert_jax.Classifier) if name[0] != "_"} - {"predict"}
    assert not [name for name in of_labels if hasattr(model, name)]


@pytest.mark.slow
def test_predictions_are_those_of_scikit_learn(tmp_path):
    labels = ("a", "b", "c")
    several = save_with(tmp_path / "several", labels, "multi_label_classification")
    number = save_with(tmp_path / "number", ("LABEL_0",), "regression")
    chosen, probabilities = several.predict(SMALL_TEXTS), several.predict_proba(SMALL_TEXTS)
    np.testing.assert_array_equal(chosen, probabilities > 0.5)
    assert several.predict([]).shape == (0, 3) and several.predict(SMALL_TEXTS[0]).shape == (3,)
    assert [{label.label for label in found} for found in several.classify(SMALL_TEXTS)] == [
        {labels[i] for i in np.flatnonzero(row)} for row in chosen
    ]
    assert number.predict(SMALL_TEXTS).dtype == np.float64
    for method in (number.classify, number.predict_proba):
        with pytest.raises(BertJaxError, match="call predict"):
            method(SMALL_TEXTS)


def save_with(path, labels, problem_type):
    model = write_and_load(path / "plain", labels)
    save(path / "model", model, hf_config=model.layout.hf_config | {"problem_type": problem_type})
    return bert_jax.load(path / "model")
