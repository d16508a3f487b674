"""Multi-vector embedders: the arguments and results of their methods, and the same vectors from an ONNX file."""

import json
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.export.onnx_directory import export_onnx
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion
from bert_jax.hub.sentence_transformers import Projection
from bert_jax.inference.computations import QueryTokenVectors
from bert_jax.inference.engines.jax import JaxEngine
from bert_jax.inference.reranker import make_score_function, pair_counter, rank_documents
from bert_jax.search.mining import CachedPairScorer
from tests.support.cases import long_except
from tests.support.families import DEBERTA_V2_CONFIGS
from tests.support.onnx_models import CASES, SmallModel, graph_inputs, random_texts
from tests.support.small_models import SMALL_TEXTS, SMALL_VOCABULARY, write_model

pytestmark = pytest.mark.slow
SETTINGS = MultiVectorSettings(
    prompts={"query": "the ", "document": "on "}, projection=Projection(6, activation="tanh"),
    expansion=QueryExpansion(10), skiplist=(".",),
)  # fmt: skip
LONG = "the cat sat on the mat . cats " * 6
TEXTS = [*SMALL_TEXTS, "", LONG]


def write(path, settings=SETTINGS, **changes):
    write_model(path, heads=(), pooler=False, multi_vector=settings, **changes)
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write(tmp_path_factory.mktemp("multi-vector"))


@pytest.fixture(scope="module")
def model(directory):
    return bert_jax.load(directory)


def assert_same(first, second, atol=2e-6):
    assert [vectors.shape for vectors in first] == [vectors.shape for vectors in second]
    for vectors, others in zip(first, second, strict=True):
        np.testing.assert_allclose(vectors, others, rtol=0, atol=atol)


def test_texts_in_batches_give_what_they_give_alone(model):
    for encode, length in ((model.encode_query, 10), (model.encode_document, 5)):
        vectors = encode(SMALL_TEXTS)
        assert isinstance(vectors, list) and vectors[0].shape == (length + (length == 5), 6)
        assert_same([encode(text) for text in SMALL_TEXTS], vectors)
        assert_same(encode(SMALL_TEXTS, batch_size=3, show_progress_bar=False), vectors)
        assert_same(list(encode(iter(SMALL_TEXTS))), vectors)
        assert_same(encode(tuple(SMALL_TEXTS)), vectors)
        assert encode([]) == []
        np.testing.assert_allclose([np.linalg.norm(v, axis=-1).mean() for v in vectors], 1, atol=1e-6)
    assert_same(model.encode_query(["cat"]), model.encode(["cat"], task="query"))
    assert_same(model.encode_document(["cat"], prompt=""), model.encode(["cat"], prompt=""))


def test_max_sim_is_that_of_a_loop(model):
    queries, documents = model.encode_query(SMALL_TEXTS[:3]), model.encode_document(SMALL_TEXTS)
    expected = [[(q @ d.T).max(1).sum() for d in documents] for q in queries]
    np.testing.assert_allclose(model.similarity(queries, documents), expected, rtol=1e-5)
    ranked = model.rank(SMALL_TEXTS[0], SMALL_TEXTS, top_k=3, return_documents=True)
    assert [one["corpus_id"] for one in ranked] == np.argsort(-np.array(expected[0]))[:3].tolist()
    assert [one["text"] for one in ranked] == [SMALL_TEXTS[one["corpus_id"]] for one in ranked]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.encode("cat", task="passage"), "task"),
        (lambda model: model.encode("cat", prompt_name="passage"), "prompt"),
        (lambda model: model.encode("cat", pool_factor=0), "pool_factor"),
        (lambda model: model.encode(3), "text"),
        (lambda model: model.encode_document(["cat"], batch_size=0), "batch_size"),
        (lambda model: model.similarity(["cat"], ["mat"]), "embeddings1 must be arrays [T, 6]"),
        (lambda model: model.similarity(np.zeros((2, 6)), np.zeros((2, 5))), "embeddings2 must be arrays"),
        (lambda model: model.rank("cat", "mat"), "a list of texts"),
        (lambda model: model.rank("cat", ["mat"], top_k=0), "top_k"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(call, message, model):
    with pytest.raises(BertJaxError, match=re.escape(message)) as refused:
        call(model)
    assert "\n" not in str(refused.value)


def test_a_copy_and_a_saved_model_give_the_same(model, tmp_path):
    model.save(tmp_path / "saved")
    for other in (pickle.loads(pickle.dumps(model)), bert_jax.load(tmp_path / "saved")):
        assert_same(other.encode_query(SMALL_TEXTS), model.encode_query(SMALL_TEXTS), atol=0)


@pytest.fixture(scope="module")
def exported(directory, tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx") / "onnx"
    return folder, export_onnx(directory, folder, "auto")


@pytest.mark.filterwarnings("ignore:.*truncated")
def test_the_onnx_file_gives_the_same_vectors(model, exported, tmp_path):
    path, (exact, rounded) = exported
    assert exact.outputs == ["last_hidden_state", "token_embeddings"] and exact.difference.largest < 1e-5
    assert 1e-4 < rounded.difference.share < 0.1
    theirs = bert_jax.load(path, engine="onnxruntime")
    assert type(theirs) is bert_jax.MultiVectorEmbedder
    theirs.save(tmp_path / "saved")
    for other in (theirs, bert_jax.load(tmp_path / "saved", engine="onnxruntime")):
        assert_same(other.encode_query(TEXTS), model.encode_query(TEXTS))
        assert_same(other.encode_document(TEXTS), model.encode_document(TEXTS))
    in_bytes = bert_jax.load(path, engine="onnxruntime", dtype="int8")
    for encode in ("encode_query", "encode_document"):
        vectors, others = getattr(in_bytes, encode)(TEXTS), getattr(model, encode)(TEXTS)
        assert_same(vectors, others, atol=0.1)
        assert max(np.abs(a - b).max() for a, b in zip(vectors, others, strict=True)) > 1e-4


@pytest.mark.filterwarnings("ignore:.*truncated")
@pytest.mark.parametrize("changes", [{"attend": True}, {"strategy": "min"}, None], ids=str)
def test_other_queries_have_the_same_vectors_in_onnx(changes, exported, directory, tmp_path):
    expansion = changes and replace(SETTINGS.expansion, **changes)
    write(tmp_path / "model", replace(SETTINGS, expansion=expansion, projection=None, normalize=False))
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    ours, theirs = (
        bert_jax.load(tmp_path / "model"),
        bert_jax.load(tmp_path / "onnx", engine="onnxruntime"),
    )
    assert_same(theirs.encode_query(TEXTS), ours.encode_query(TEXTS), atol=1e-5)
    assert_same(theirs.encode_document(TEXTS), ours.encode_document(TEXTS), atol=1e-5)


# DeBERTa's convolution, and tokens with no attended one in their window, have other states there.
OTHERS = {"static", "modernbert", "modernbert, plain", "deberta-v2", "deberta-v2, convolution"} | {
    f"deberta-v2, {name}" for name in ("projections of its own", "content to position alone")
}


@pytest.mark.parametrize(
    "case", long_except([case for case in CASES if case not in OTHERS], ["bert", "eurobert"])
)
def test_tokens_that_are_not_attended_to_have_states_in_each_family(case):
    model = SmallModel.of_case(case)
    batch = graph_inputs(model.layout, random_texts(model.layout))
    real = batch["attention_mask"].sum(1)
    attended = (real + 1) // 2
    engine = JaxEngine(model.with_head(None).config, model.params)
    given = {"token_type_ids": np.zeros_like(batch["input_ids"]), **batch, "attended": attended}
    given = {name: array.astype(np.int32) for name, array in given.items()}
    expected = engine.read(engine.start(QueryTokenVectors(None, False), given))
    mask = (np.arange(batch["input_ids"].shape[1]) < attended[:, None]).astype(np.int64)
    (states,) = model.session().run(None, batch | {"attention_mask": mask})
    for row, length in enumerate(real):
        np.testing.assert_allclose(states[row, :length], expected[row, :length], rtol=0, atol=1e-5)


def test_the_export_compares_tokens_that_are_not_attended_to(tmp_path):
    published = DEBERTA_V2_CONFIGS["convolution"] | {"vocab_size": len(SMALL_VOCABULARY)}
    convolved = FAMILIES["deberta-v2"].read_config(published, "config.json")
    write(tmp_path / "model", config=convolved, family="deberta-v2")
    with pytest.raises(BertJaxError, match="onnx is not written: outputs of ONNX Runtime differ"):
        export_onnx(tmp_path / "model", tmp_path / "onnx")
    write(tmp_path / "attending", replace(SETTINGS, expansion=None), config=convolved, family="deberta-v2")
    export_onnx(tmp_path / "attending", tmp_path / "onnx")


def test_pairs_are_scored_as_by_a_reranker(model, directory, tmp_path, capsys):
    documents = [*SMALL_TEXTS, "cats", "..."]
    expected = model.similarity(model.encode_query(["the cat", "mat"]), model.encode_document(documents))
    ranked = rank_documents(model, "the cat", documents)
    assert [index for index, _ in ranked] == np.argsort(-expected[0], kind="stable").tolist()
    np.testing.assert_allclose([score for _, score in ranked], np.sort(expected[0])[::-1], rtol=1e-5)
    scorer = CachedPairScorer(str(directory), tmp_path / "cache")
    pairs = [(query, document) for query in ("the cat", "mat") for document in documents]
    np.testing.assert_allclose(scorer.score(pairs), expected.ravel(), rtol=1e-5)
    rows = [json.dumps({"query": "the cat", "documents": documents}) + "\n"]
    (tmp_path / "in.jsonl").write_text("".join(rows))
    flags = ["--model", str(directory), "--input", str(tmp_path / "in.jsonl")]
    assert main(["rerank", *flags, "--top-k", "3"]) == 0
    (written,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]
    assert [(row["index"], row["score"]) for row in written["ranked"]] == [
        (index, pytest.approx(score, abs=1e-5)) for index, score in ranked[:3]
    ]
    assert main(["rerank", *flags, "--min-precision", "0.9"]) == 1
    assert "min_precision needs probabilities" in capsys.readouterr().err


def test_truncated_pairs_are_counted_by_their_documents(model):
    truncated = pair_counter(model)
    score = make_score_function(model, truncated=truncated)
    assert len([*score([("cat", LONG), ("mat", "cat"), ("mat", LONG)])]) == 3
    assert truncated.notice(what="pairs").startswith(
        "2 of 3 pairs are longer than 16 tokens and were truncated"
    )
    with pytest.raises(BertJaxError, match="truncates long texts; leave long_texts out"):
        make_score_function(model, "windows")
