"""BGE-M3: three vectors from one pass are those of the formulas, and directories of FlagEmbedding open and are
written."""

import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.export.onnx_directory import export_onnx
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.hub.torch_pickle import read_torch_tensors, write_torch_tensors
from bert_jax.inference import engines
from bert_jax.inference.engines.jax import ACCELERATOR_SHAPES
from tests.support.m3_models import M3_TEXTS, write_published_m3, write_small_m3
from tests.support.optional_modules import torch
from tests.support.small_models import SMALL_TEXTS, load_error

FILES = ("colbert_linear.pt", "sparse_linear.pt")
WEIGHTS = (0.4, 0.2, 0.4)
PAIRS = [(query, document) for query in M3_TEXTS[:3] for document in M3_TEXTS]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small")
    write_small_m3(path)
    return path


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def vectors_by_hand(model, layers: dict, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    states, special = model.hidden_states(text), model.tokenizer.special
    colbert, weigh = layers["colbert_linear.pt"], layers["sparse_linear.pt"]
    weights = np.maximum(states @ weigh["weight"][0] + weigh["bias"][0], 0)
    sparse = np.zeros(model.config.vocab_size)
    for token, weight in zip(model.tokenize(text).input_ids, weights, strict=True):
        sparse[token] = max(sparse[token], weight)
    sparse[[special.cls, special.sep, special.pad, special.unk]] = 0
    return unit(states[0]), sparse, unit(states[1:] @ colbert["weight"].T + colbert["bias"])


def scores_by_hand(query, document) -> tuple[float, float, float]:
    products = query[2] @ document[2].T
    return query[0] @ document[0], query[1] @ document[1], products.max(1).sum() / len(products)


@pytest.mark.slow
def test_three_vectors_and_their_scores_are_those_of_the_formulas(tmp_path):
    path = write_published_m3(tmp_path)
    model = bert_jax.load(path)
    layers = {
        name: {key: array.numpy() for key, array in torch.load(path / name, weights_only=True).items()}
        for name in FILES
    }
    expected = {text: vectors_by_hand(model, layers, text) for text in M3_TEXTS}
    vectors = model.encode_all(M3_TEXTS)
    sparse = vectors.lexical_weights.toarray()
    for n, (dense, weights, tokens) in enumerate(expected.values()):
        np.testing.assert_allclose(vectors.dense_vecs[n], dense, atol=1e-5)
        np.testing.assert_allclose(sparse[n], weights, atol=1e-5)
        assert vectors.colbert_vecs[n].shape == tokens.shape
        np.testing.assert_allclose(vectors.colbert_vecs[n], tokens, atol=1e-5)
    assert (sparse > 0).sum() > 10 and (vectors.lexical_weights.data > 0).all()
    by_hand = np.array([scores_by_hand(expected[a], expected[b]) for a, b in PAIRS])
    found = model.compute_score(PAIRS, WEIGHTS)
    for n, name in enumerate(("dense", "sparse", "colbert")):
        np.testing.assert_allclose(found[name], by_hand[:, n], atol=1e-5)
    both = (0.4 * by_hand[:, 0] + 0.2 * by_hand[:, 1]) / 0.6
    np.testing.assert_allclose(found["sparse+dense"], both, atol=1e-5)
    np.testing.assert_allclose(found["colbert+sparse+dense"], by_hand @ WEIGHTS, atol=1e-5)
    alone = model.compute_score(PAIRS[0])
    assert alone["colbert+sparse+dense"] == pytest.approx(by_hand[0].mean(), abs=1e-5)


@pytest.mark.slow
def test_each_class_opens_its_vectors_of_the_same_directory(small, tmp_path):
    model = bert_jax.load(small)
    assert type(model) is bert_jax.M3Embedder and model.get_embedding_dimension() == 8
    vectors = model.encode_all(SMALL_TEXTS)
    sparse, tokens = bert_jax.SparseEmbedder.load(small), bert_jax.MultiVectorEmbedder.load(small)
    assert sparse.get_embedding_dimension() == 12 and tokens.get_embedding_dimension() == 6
    for name, embedder in {"sparse": sparse, "shared": model.sparse_embedder}.items():
        assert abs(embedder.encode(SMALL_TEXTS) - vectors.lexical_weights).max() < 1e-6, name
    for embedder in (tokens, model.multi_vector_embedder):
        for ours, expected in zip(embedder.encode(SMALL_TEXTS), vectors.colbert_vecs, strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-6)
    dense = bert_jax.Embedder.load(small)
    for embedder in (model, dense):
        np.testing.assert_allclose(embedder.encode(SMALL_TEXTS), vectors.dense_vecs, atol=1e-6)
    # Whichever is saved or pickled, it is all three.
    before = model_fingerprint(small)
    for n, opened in enumerate((model, dense, sparse, tokens, model.sparse_embedder)):
        opened.save(tmp_path / str(n))
        assert model_fingerprint(tmp_path / str(n)) == before
        again = pickle.loads(pickle.dumps(opened))
        assert type(again) is type(opened) and again.layout == opened.layout
        assert bert_jax.core.hashes.is_whole(tmp_path / str(n))
    changed = bytearray((tmp_path / "0" / FILES[0]).read_bytes())
    changed[len(changed) // 2] ^= 1
    (tmp_path / "0" / FILES[0]).write_bytes(changed)
    assert model_fingerprint(tmp_path / "0") != before
    assert not bert_jax.core.hashes.is_whole(tmp_path / "0")


@pytest.mark.slow
def test_texts_that_share_rows_have_the_same_vectors(small, monkeypatch):
    texts = SMALL_TEXTS * 3
    apart = bert_jax.load(small).encode_all(texts)
    monkeypatch.setattr(engines.jax, "platform_shapes", lambda: ACCELERATOR_SHAPES)
    model = bert_jax.load(small)
    assert model.engine.shapes.shared
    shared = model.encode_all(texts)
    np.testing.assert_allclose(shared.dense_vecs, apart.dense_vecs, atol=1e-5)
    assert abs(shared.lexical_weights - apart.lexical_weights).max() < 1e-5
    for ours, expected in zip(shared.colbert_vecs, apart.colbert_vecs, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.slow
def test_what_flag_embedding_saved_without_modules_opens_and_sentence_transformers_opens_ours(tmp_path):
    plain = write_published_m3(tmp_path / "plain", modules=False)
    model = bert_jax.load(plain)
    assert type(model) is bert_jax.M3Embedder and model.embedder.pooling == "cls"
    states = model.hidden_states(M3_TEXTS)
    np.testing.assert_allclose(
        model.encode(M3_TEXTS), unit(np.stack([rows[0] for rows in states])), atol=1e-5
    )
    model.save(tmp_path / "saved")
    for name in FILES:
        theirs, ours = (torch.load(path / name, weights_only=True) for path in (plain, tmp_path / "saved"))
        assert theirs.keys() == ours.keys() == {"weight", "bias"}
        assert all(torch.equal(theirs[key], ours[key]) for key in theirs)
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(M3_TEXTS)
    np.testing.assert_allclose(model.encode(M3_TEXTS), theirs, atol=1e-5)


@pytest.mark.slow
def test_an_index_takes_the_vectors_of_one_directory(small):
    documents = [(f"{n}", text) for n, text in enumerate(SMALL_TEXTS)]
    path = small.parent / "index"
    heads = ("model", "sparse_model", "multi_vector_model")
    bert_jax.Index.build(documents, path, **dict.fromkeys(heads, small))
    query = "on the mat ."
    hits = bert_jax.Index.open(path).search(query, top_k=8)
    assert {*hits[0].rankings} == {"keywords", "vectors", "sparse", "late_interaction", "fusion"}
    model = bert_jax.load(small)
    shared = bert_jax.Index.open(path, **dict.fromkeys(heads, model))
    assert [hit.id for hit in shared.search(query, top_k=8)] == [hit.id for hit in hits]
    sparse = model.sparse_embedder
    scores = sparse.similarity(sparse.encode_query(query), sparse.encode_document(SMALL_TEXTS))[0]
    by_tokens = shared.search(query, top_k=8, retrievers=["sparse"])
    assert len(by_tokens) == (scores > 0).sum() > 1
    for hit in by_tokens:
        assert hit.score == pytest.approx(scores[int(hit.id)], rel=1e-2)


@pytest.mark.slow
def test_its_onnx_file_and_another_pooling_are_the_dense_embedder_alone(small, tmp_path):
    export_onnx(small, tmp_path / "onnx")
    assert not [name for name in FILES if (tmp_path / "onnx" / name).exists()]
    model = bert_jax.load(tmp_path / "onnx", engine="onnxruntime")
    assert type(model) is bert_jax.Embedder
    np.testing.assert_allclose(model.encode(SMALL_TEXTS), bert_jax.load(small).encode(SMALL_TEXTS), atol=1e-5)
    assert bert_jax.Embedder.load(small, pooling="mean").layout.m3 is None
    assert bert_jax.load(small, head="classify", labels=["a", "b"]).layout.m3 is None


def test_torch_opens_what_we_write_and_we_too(tmp_path):
    random = np.random.default_rng(0)
    shapes = {"weight": (300, 7), "bias": (300,), "one": (1, 7), "empty": (0, 3), "scalar": ()}
    tensors = {name: np.asarray(random.normal(size=shape), np.float32) for name, shape in shapes.items()}
    for name in ("first", "second"):
        write_torch_tensors(tmp_path / name / "layer.pt", tensors)
    path = tmp_path / "first/layer.pt"
    assert path.read_bytes() == (tmp_path / "second/layer.pt").read_bytes()
    found, read = read_torch_tensors(path)
    theirs = torch.load(path, weights_only=True)
    for name, array in tensors.items():
        assert found[name] == shapes[name] == tuple(theirs[name].shape)
        np.testing.assert_array_equal(read[name](), array)
        np.testing.assert_array_equal(theirs[name].numpy(), array)


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def flip(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"_linear/data/0") + 20] ^= 255
    path.write_bytes(content)


def layer(**shapes):
    return lambda path: write_torch_tensors(
        path, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    )


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        (FILES[0], lambda path: path.unlink(), "but not colbert_linear.pt"),
        (FILES[1], lambda path: path.unlink(), "but not sparse_linear.pt"),
        (FILES[0], cut, "colbert_linear.pt is damaged or not a torch checkpoint"),
        (FILES[0], flip, "checksum differs"),
        (FILES[1], lambda path: path.write_text("no zip"), "sparse_linear.pt"),
        (FILES[1], layer(weight=(2, 8), bias=(2,)), "sparse_linear.pt holds weight [2, 8], bias [2], not"),
        (FILES[0], layer(weight=(6, 9), bias=(6,)), "reads states of 8"),
        (FILES[0], layer(weight=(6, 8)), "holds weight [6, 8], not the weight and the bias"),
        (FILES[0], layer(weight=(0, 8), bias=(0,)), "holds weight [0, 8]"),
        (FILES[0], layer(weight=(8,), bias=()), "not the weight and the bias"),
        (FILES[0], layer(), "holds no tensor"),
    ],
)
def test_a_damaged_layer_is_refused_in_one_line(small, tmp_path, file, damage, message):
    path = shutil.copytree(small, tmp_path / "model")
    damage(path / file)
    assert message in load_error(path)


@pytest.mark.slow
def test_wrong_weights_and_pairs_are_refused_in_one_line(small):
    model = bert_jax.load(small)
    for weights in ((1, 1), 3, "111", (1, 1, "x"), (-1, 1, 1), (0, 0, 1), (float("nan"), 1, 1), None):
        with pytest.raises(BertJaxError, match="weights_for_different_modes"):
            model.compute_score(("cat", "mat"), weights)
    for pairs in ("cat", ["cat"], [("cat",)], [("cat", 3)], [("cat", ["mat"])], 3):
        with pytest.raises(BertJaxError) as refused:
            model.compute_score(pairs)
        assert "\n" not in str(refused.value)
    assert {name: array.shape for name, array in model.compute_score([]).items()}.keys() == {
        "dense", "sparse", "colbert", "sparse+dense", "colbert+sparse+dense",
    }  # fmt: skip
    empty = model.encode_all([])
    assert (
        empty.dense_vecs.shape == (0, 8) and empty.lexical_weights.shape == (0, 12) and not empty.colbert_vecs
    )
    assert replace(model.layout, m3=None) == bert_jax.load(small).layout.embedding_with(model.layout.embedder)
