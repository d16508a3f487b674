"""Sparse embedders: the arguments and results of their methods, and queries without a network."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.export.onnx_directory import export_onnx
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.hub.sparse_encoder import ACTIVATIONS, POOLINGS, SparseSettings
from bert_jax.inference.sparse_vectors import QueryWeights
from tests.support.cases import long_except
from tests.support.processes import process_environment
from tests.support.project import ROOT
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, write_model

pytestmark = pytest.mark.slow
CONFIG = SMALL_CONFIG.replace(max_position_embeddings=64)
SETTINGS = SparseSettings(query_weights=True, prompts={"query": "the ", "document": "on "})
LONG = "the cat sat on the mat . cats " * 12


def write(path, settings=SETTINGS):
    write_model(path, CONFIG, heads=("mlm",), pooler=False, sparse=settings)
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sparse"))


@pytest.fixture(scope="module")
def model(directory):
    return bert_jax.load(directory)


def assert_same(first, second):
    assert first.shape == second.shape and abs(first - second).max() <= 2e-6


def test_texts_in_batches_give_what_they_give_alone(model):
    vectors = model.encode([*SMALL_TEXTS, ""])
    assert vectors.format == "csr" and vectors.dtype == np.float32 and vectors.shape == (9, 12)
    assert (vectors.data > 0).all()
    for row, text in enumerate([*SMALL_TEXTS, ""]):
        assert_same(model.encode(text), vectors[[row]])
    assert_same(model.encode(SMALL_TEXTS, batch_size=3, show_progress_bar=False), vectors[:8])
    streamed = list(model.encode(iter(SMALL_TEXTS)))
    assert [row.shape for row in streamed] == [(1, 12)] * 8
    assert_same(streamed[1], vectors[[1]])
    assert model.encode([]).shape == (0, 12) == model.encode_query([]).shape


def test_the_largest_weights_are_kept(model, tmp_path):
    whole, kept = model.encode(SMALL_TEXTS), model.encode(SMALL_TEXTS, max_active_dims=2)
    for row in range(8):
        largest = np.argsort(-whole[[row]].toarray()[0])[:2]
        assert sorted(largest) == kept[[row]].indices.tolist()
    limited = bert_jax.load(write(tmp_path, replace(SETTINGS, max_active_dims=2)))
    assert_same(limited.encode(SMALL_TEXTS), kept)
    assert limited.encode_query("the cat sat on the mat").nnz == 2
    assert limited.encode(SMALL_TEXTS, max_active_dims=12).nnz == whole.nnz


def test_prompts_stand_before_texts(model):
    assert_same(model.encode_document("mat"), model.encode("on mat"))
    assert_same(model.encode("mat", "document"), model.encode("mat", prompt="on "))
    assert_same(model.encode_query("mat"), model.encode_query("the mat", prompt=""))
    assert model.prompts == SETTINGS.prompts and model.max_seq_length == 64
    assert model.get_embedding_dimension() == 12


def test_a_token_counts_once_in_a_query_and_special_tokens_never(model):
    weights = model.params["query_weights"]["weight"]
    (decoded,) = model.decode(model.encode_query("cat cat mat [MASK]", prompt=""))
    expected = {
        token: float(weights[model.tokenizer.rust.token_to_id(token)]) for token in ("cat", "mat", "[MASK]")
    }
    assert dict(decoded) == pytest.approx(expected)
    with pytest.raises(BertJaxError, match="a query is a single text"):
        model.encode_query([("the cat", "the mat")])


def test_texts_that_are_too_long_are_truncated_with_a_warning_or_read_in_windows(model):
    with pytest.warns(UserWarning, match="1 of 1 texts .* longer than 64 tokens .* was truncated"):
        truncated = model.encode(LONG)
    with pytest.warns(UserWarning, match="longer than 64 tokens"):
        model.encode_query(LONG)
    windows = model.tokenizer.windows([LONG], max_length=64, overlap=16)[0]
    texts = [model.tokenizer.decode(window.input_ids) for window in windows]
    joined = model.encode(texts).toarray().max(0)
    np.testing.assert_allclose(model.encode(LONG, long_texts="windows").toarray()[0], joined, atol=2e-6)
    assert abs(truncated.toarray()[0] - joined).max() > 1e-3
    assert model.encode_query("mat " * 70 + "cat", long_texts="windows").nnz == 3


def test_vectors_are_compared_and_explained(model):
    query, documents = model.encode_query("the cat"), model.encode(SMALL_TEXTS)
    dense = documents.toarray()
    np.testing.assert_allclose(model.similarity(query, documents), query.toarray() @ dense.T, atol=1e-5)
    shared = model.intersection(query, documents)
    products = np.maximum(query.toarray() * dense, 0)
    np.testing.assert_allclose(shared.toarray(), products, atol=1e-6)
    assert shared.nnz == (products > 0).sum() > 0
    counts = (dense != 0).sum(1)
    assert model.sparsity(documents) == {
        "active_dims": counts.mean(), "sparsity_ratio": pytest.approx(1 - counts.mean() / 12),
    }  # fmt: skip
    assert model.sparsity(documents[:0]) == {"active_dims": 0, "sparsity_ratio": 1}
    tokens = model.decode(documents, top_k=2)
    assert [len(row) for row in tokens] == [2] * 8
    assert tokens[0][0] == (model.tokenizer.tokens([dense[0].argmax()])[0], pytest.approx(dense[0].max()))
    for wrong in (dense, "the cat", csr_array((1, 5)), None):
        with pytest.raises(BertJaxError, match=r"must be sparse vectors \[N, 12\], as encode returns them"):
            model.similarity(query, wrong)
    with pytest.raises(BertJaxError, match="embeddings_1 must be one vector, not 8"):
        model.intersection(documents, query)


def test_it_is_pickled_saved_and_used_by_threads(model, tmp_path):
    expected, queries = model.encode(SMALL_TEXTS), model.encode_query(SMALL_TEXTS)
    copy = pickle.loads(pickle.dumps(model))
    model.save(tmp_path / "saved")
    for other in (copy, bert_jax.load(tmp_path / "saved"), model.with_params(model.params)):
        assert type(other) is bert_jax.SparseEmbedder
        assert_same(other.encode(SMALL_TEXTS), expected)
        assert_same(other.encode_query(SMALL_TEXTS), queries)
    with ThreadPoolExecutor(4) as threads:
        for vectors in threads.map(model.encode, [SMALL_TEXTS] * 8):
            assert_same(vectors, expected)


def test_what_is_compiled_before_serves_texts(directory, monkeypatch):
    model = bert_jax.load(directory)
    model.warm_up([4], texts=1)
    monkeypatch.setattr("bert_jax.inference.engines.jax.compile_program", None)  # nothing more is compiled
    assert model.encode("cat cat").nnz


def test_it_gives_no_dense_vectors_unless_it_is_opened_so(directory, tmp_path):
    dense = bert_jax.Embedder.load(directory, pooling="mean")
    assert type(dense) is bert_jax.Embedder and dense.encode("the cat").shape == (8,)
    with pytest.raises(BertJaxError, match="dense vectors are needed here"):
        bert_jax.Index.build([("a", "the cat")], tmp_path / "index", model=directory)
    with pytest.raises(BertJaxError, match="by bert_jax.Classifier; call Classifier.load"):
        write_model(tmp_path / "other", heads=("classify",), labels=("a", "b"))
        bert_jax.SparseEmbedder.load(tmp_path / "other")


@pytest.mark.parametrize(
    ("pooling", "activation"),
    long_except(product(POOLINGS, ACTIVATIONS), [("max", "relu"), ("sum", "log1p_relu")]),
)
def test_the_onnx_file_gives_the_same_vectors(pooling, activation, tmp_path):
    write(tmp_path / "a", replace(SETTINGS, pooling=pooling, activation=activation, max_active_dims=9))
    (exported,) = export_onnx(tmp_path / "a", tmp_path / "b")
    assert exported.outputs == ["logits", "sentence_embedding"]
    ours, theirs = bert_jax.load(tmp_path / "a"), bert_jax.load(tmp_path / "b", engine="onnxruntime")
    assert type(theirs) is bert_jax.SparseEmbedder
    for encode in ("encode", "encode_query", "encode_document"):
        assert_same(getattr(ours, encode)(SMALL_TEXTS), getattr(theirs, encode)(SMALL_TEXTS))
    theirs.save(tmp_path / "c")
    assert_same(bert_jax.load(tmp_path / "c", engine="onnxruntime").encode("mat"), ours.encode("mat"))


def test_queries_need_neither_the_network_nor_jax(directory, model):
    weights = QueryWeights.open(ModelDirectory.open(directory))
    (vector,) = weights.embed(["the cat"])
    expected = model.encode_query("the cat", prompt="")
    assert vector.ids.tolist() == expected.indices.tolist()
    np.testing.assert_array_equal(vector.weights, expected.data)
    code = (
        "import sys\n"
        "from bert_jax.hub.model_directory import ModelDirectory\n"
        "from bert_jax.inference.sparse_vectors import QueryWeights\n"
        "print(len(QueryWeights.open(ModelDirectory.open(sys.argv[1])).embed(['the cat'])), 'jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, directory],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=process_environment(),
    )
    assert done.stdout.split() == ["1", "False"], done.stderr
