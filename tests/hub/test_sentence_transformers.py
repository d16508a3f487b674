"""Embedders: what `sentence-transformers` saved we open, what we save it opens, with the same vectors."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.sentence_transformers import EmbedderSettings, read_embedder
from bert_jax.hub.sentence_transformers import write_embedder as write_embedder
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.encoder import Encoder
from tests.support.cases import long_except
from tests.support.minilm import MINILM, varied_texts
from tests.support.small_models import write_model


@pytest.fixture(scope="module")
def sentence_transformers():
    """The library, whose import takes seconds."""
    return pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def theirs(sentence_transformers):
    return sentence_transformers.SentenceTransformer(MINILM, device="cpu")


def vectors(model, texts):
    return model.encode(texts, show_progress_bar=False)


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore:.*were truncated")
def test_real_weights_give_the_same_vectors_for_varied_texts(count, sentence_transformers, theirs, tmp_path):
    texts = varied_texts(count)
    model = bert_jax.load(MINILM)
    ours = vectors(model, texts)
    assert np.abs(ours - vectors(theirs, texts)).max() <= 1e-5
    model.save(tmp_path)
    opened = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    assert opened.max_seq_length == theirs.max_seq_length
    assert np.abs(vectors(opened, texts[:100]) - ours[:100]).max() <= 1e-5


@pytest.mark.long
def test_real_weights_give_the_hidden_states_of_transformers_for_varied_texts(theirs):
    texts, longest = varied_texts(500), 0
    module = theirs[0]
    module.max_seq_length = 512
    for text, states in zip(texts, bert_jax.load(MINILM).hidden_states(texts), strict=True):
        expected = theirs.encode(text, output_value="token_embeddings").numpy()
        assert states.shape == expected.shape, text
        assert np.abs(states - expected).max() <= 1e-5, text
        longest = max(longest, len(states))
    assert longest > 250


@pytest.mark.slow
def test_the_new_layout_is_the_old_one_under_other_names(theirs, tmp_path):
    theirs.save(str(tmp_path))
    ours = bert_jax.load(tmp_path).embedder
    assert ours.prompts == {"document": "", "query": ""}  # which the old file lacks
    assert replace(ours, prompts={}) == bert_jax.load(MINILM).embedder


# The new layout's mode, our name of it.
POOLINGS = {
    "mean": "mean", "cls": "cls", "max": "max", "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean", "lasttoken": "last",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "normalize"),
    long_except(
        product(POOLINGS, (True, False)), [("mean", True), *product(["cls", "weightedmean"], [False])]
    ),
)
def test_pooling_and_normalize_are_honoured_both_ways(mode, normalize, sentence_transformers, tmp_path):
    from sentence_transformers.models import Normalize, Pooling, Transformer

    write_model(tmp_path / "plain", heads=())
    body = Transformer(str(tmp_path / "plain"))
    modules = [body, Pooling(8, pooling_mode=mode), *([Normalize()] if normalize else [])]
    model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    model.max_seq_length = 12
    model.save(str(tmp_path / "theirs"))
    texts = ["the cat sat", "on", "the mat . cats", "the cat " * 20]
    ours = bert_jax.load(tmp_path / "theirs")
    assert (ours.embedder.pooling, ours.embedder.normalize) == (POOLINGS[mode], normalize)
    with pytest.warns(UserWarning, match="12"):
        np.testing.assert_allclose(vectors(ours, texts), vectors(model, texts), atol=1e-5)
    ours.save(tmp_path / "ours")
    opened = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(vectors(opened, texts), vectors(model, texts), atol=1e-5)


@pytest.mark.slow
def test_an_encoder_that_is_opened_as_an_embedder_stays_one(sentence_transformers, tmp_path):
    write_model(tmp_path / "plain")
    ours, texts = Embedder.load(tmp_path / "plain", pooling="cls"), ["the cat sat", "on"]
    states = bert_jax.load(tmp_path / "plain").encode(texts, pooling="cls", normalize_embeddings=True)
    np.testing.assert_allclose(vectors(ours, texts), states, atol=1e-5)
    np.testing.assert_array_equal(vectors(ours.with_params(ours.params), texts), vectors(ours, texts))
    ours.save(tmp_path / "ours")
    np.testing.assert_array_equal(vectors(bert_jax.load(tmp_path / "ours"), texts), vectors(ours, texts))
    opened = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(vectors(opened, texts), vectors(ours, texts), atol=1e-5)


@pytest.mark.parametrize(("name", "kept"), [("dot", "dot"), (None, "cosine")])
def test_the_similarity_of_an_embedder_is_kept(name, kept, tmp_path):
    write_embedder(tmp_path, EmbedderSettings(), 8)
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"similarity_fn_name": name}))
    write_embedder(tmp_path, read_embedder(tmp_path), 8)
    assert json.loads(path.read_text())["similarity_fn_name"] == kept


@pytest.mark.slow
def test_prompts(theirs, tmp_path):
    model = bert_jax.load(MINILM)
    model.save(tmp_path)
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prompts": {"query": "question: "}}))
    prompted = bert_jax.load(tmp_path)
    np.testing.assert_allclose(
        prompted.encode("Who?", prompt_name="query"), model.encode("question: Who?"), atol=1e-6
    )
    np.testing.assert_allclose(prompted.encode("Who?"), model.encode("Who?"), atol=1e-6)
    with pytest.raises(BertJaxError, match='did you mean "query"'):
        prompted.encode("Who?", prompt_name="qery")


@pytest.mark.slow
def test_what_is_not_computed_is_refused_by_name(tmp_path):
    bert_jax.load(MINILM).save(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    more = {"idx": 3, "name": "3", "path": "3_LSTM", "type": "sentence_transformers.models.LSTM"}
    (tmp_path / "modules.json").write_text(json.dumps([*modules, more]))
    model = bert_jax.load(tmp_path)
    with pytest.raises(BertJaxError, match="LSTM.*Encoder.load gives plain vectors"):
        model.encode("a")
    assert Encoder.load(tmp_path).encode(["a"]).shape == (1, 384)
    with pytest.raises(BertJaxError, match="LSTM"):
        model.save(tmp_path / "again")
    assert not (tmp_path / "again").exists()
    (tmp_path / "modules.json").write_text(
        json.dumps([*modules, more | {"type": "models.Dense", "path": "3"}])
    )
    with pytest.raises(BertJaxError, match="'3'.*config.json"):
        bert_jax.load(tmp_path)
    (tmp_path / "modules.json").write_text("[{}]")
    with pytest.raises(BertJaxError, match="0.type"):
        bert_jax.load(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tanh", "none", "residual", "two"])
def test_a_dense_layer_is_computed_or_refused(kind, sentence_transformers, tmp_path):
    import torch
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    write_model(tmp_path / "plain", heads=())
    activation = torch.nn.Tanh() if kind == "tanh" else torch.nn.Identity()
    more = {"use_residual": True} if kind == "residual" else {}
    layers = [Dense(8, 6, bias=kind != "none", activation_function=activation, **more)]
    layers += [Dense(6, 5)] * (kind == "two")
    body = Transformer(str(tmp_path / "plain"))
    modules = [body, Pooling(8, pooling_mode="mean"), *layers, Normalize()]
    model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    model.save(str(tmp_path / "theirs"))
    ours, texts = bert_jax.load(tmp_path / "theirs"), ["the cat sat", "on", "the mat . cats"]
    refused = {"residual": "a residual", "two": "the order Transformer, Pooling, Dense, Dense, Normalize"}
    if wanted := refused.get(kind):
        with pytest.raises(BertJaxError, match=wanted):
            ours.encode(texts)
        return
    assert ours.embedder.projection.activation == kind
    np.testing.assert_allclose(vectors(ours, texts), vectors(model, texts), atol=1e-5)
    ours.save(tmp_path / "ours")
    opened = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(vectors(opened, texts), vectors(model, texts), atol=1e-5)
    again = bert_jax.load(tmp_path / "ours")
    assert again.embedder == ours.embedder
    with_head = bert_jax.load(tmp_path / "ours", head="classify", labels=["a", "b"])
    assert "projection" not in with_head.params
