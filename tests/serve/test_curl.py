"""The examples of text-embeddings-inference, each asked as there: with curl."""

import asyncio
import json
import shutil
import subprocess
from contextlib import nullcontext

import numpy as np
import pytest

import bert_jax
from bert_jax.inference.zero_shot import CandidateLabels
from bert_jax.serve.application import Application
from bert_jax.serve.call import Call
from bert_jax.serve.models import ServedClassifier
from bert_jax.serve.requests import Refusal
from bert_jax.serve.served_embedders import ServedMultiVectorEmbedder
from bert_jax.serve.settings import ServeSettings

pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
TEXTS = ["the cat sat on the mat .", "cats"]


@pytest.fixture(scope="session")
def ask(served):
    """Returns a function that asks a model with curl, and gives the status and what came back."""

    def ask(model: str, path: str, body: dict | None = None) -> tuple[int, dict | list]:
        words = [] if body is None else ["-X", "POST", "-d", json.dumps(body)]
        words += ["-H", "Content-Type: application/json", "-w", "\n%{http_code}"]
        url = f"{served}/models/{model}{path}" if model else f"{served}{path}"
        done = subprocess.run(["curl", "-sS", "-m", "20", url, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answer, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(answer)

    return ask


@pytest.fixture(scope="session")
def answer(ask):
    """Returns a function that asks a model for what it has to answer."""

    def answer(*asked):
        status, output = ask(*asked)
        assert status == 200, output
        return output

    return answer


@pytest.fixture(scope="session")
def vectors(served_models):
    return bert_jax.Embedder.load(served_models["embedder"], engine="onnxruntime").encode(TEXTS)


def labels_of(scored: list[dict]) -> list[str]:
    scores = [one["score"] for one in scored]
    assert scores == sorted(scores, reverse=True) and sum(scores) == pytest.approx(1)
    return [one["label"] for one in scored]


def test_embed(answer, vectors):
    np.testing.assert_allclose(answer("embedder", "/embed", {"inputs": TEXTS}), vectors, atol=1e-6)
    np.testing.assert_allclose(answer("embedder", "/embed", {"inputs": TEXTS[0]}), vectors[:1], atol=1e-6)
    np.testing.assert_allclose(answer("", "/embed", {"inputs": TEXTS}), vectors, atol=1e-6)  # no other fits
    longer = answer("embedder", "/embed", {"inputs": TEXTS, "normalize": False})
    assert np.linalg.norm(longer, axis=1).min() > 1.1
    states = answer("embedder", "/embed_all", {"inputs": TEXTS[1]})
    assert np.shape(states) == (1, 4, 8)
    np.testing.assert_allclose(np.mean(states[0], 0), longer[1], atol=1e-5)


def test_embed_sparse(answer, ask, served_models):
    model = bert_jax.load(served_models["sparse"], engine="onnxruntime")

    def weights(inputs, **options):
        output = answer("sparse", "/embed_sparse", {"inputs": inputs, **options})
        return [{one["index"]: pytest.approx(one["value"], abs=1e-6) for one in row} for row in output]

    def expected(texts, **options):
        vectors = model.encode(texts, **options)
        rows = (vectors[[row]] for row in range(len(texts)))
        return [dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in rows]

    assert weights(TEXTS) == expected(TEXTS)
    assert weights(TEXTS[0]) == weights(model.tokenize(TEXTS[0]).input_ids) == expected(TEXTS[:1])
    assert weights(TEXTS, prompt_name="query") == expected(TEXTS, prompt_name="query") != expected(TEXTS)
    assert answer("sparse", "/", {"inputs": TEXTS[0]}) == answer(
        "sparse", "/embed_sparse", {"inputs": TEXTS[0]}
    )
    assert answer("sparse", "/info")["model_type"] == {"embedding": {"pooling": "splade"}}
    status, output = ask("embedder", "/embed_sparse", {"inputs": TEXTS})
    assert status == 424 and "needs a model of the kind sparse-embedder" in output["error"]
    assert ask("sparse", "/embed", {"inputs": TEXTS})[0] == 424


def test_embed_all_of_a_multi_vector_embedder(answer, ask, served_models):
    model = bert_jax.load(served_models["multi-vector"], engine="onnxruntime")

    def vectors(inputs, path="/embed_all", **options):
        return list(map(np.float32, answer("multi-vector", path, {"inputs": inputs, **options})))

    def assert_same(given, expected):
        for vectors, others in zip(given, expected, strict=True):
            np.testing.assert_allclose(vectors, others, atol=1e-6)

    documents, queries = model.encode_document(TEXTS), model.encode_query(TEXTS)
    assert [len(of_text) for of_text in documents + queries] == [8, 4, 10, 10]
    assert_same(vectors(TEXTS), documents)
    assert_same(vectors(TEXTS, path="/"), documents)
    assert_same(vectors(TEXTS, prompt_name="document"), documents)
    assert_same(vectors(TEXTS, prompt_name="query"), queries)
    assert_same(vectors(TEXTS[0]), documents[:1])
    ids = model.tokenize(f"the {TEXTS[0]}").input_ids
    assert_same(vectors(ids, prompt_name="query"), queries[:1])
    assert answer("multi-vector", "/info")["model_type"] == {"multi-vector-embedder": {}}
    assert ask("multi-vector", "/embed_all", {"inputs": TEXTS, "prompt_name": "other"})[0] == 422
    assert ask("multi-vector", "/embed", {"inputs": TEXTS})[0] == 424
    refused = {"inputs": "the " * 20, "truncate": False}
    assert "16 tokens" in ask("multi-vector", "/embed_all", refused)[1]["error"]


def test_the_tokens_that_lengthen_queries_count_in_an_answer(served_models):
    model = bert_jax.load(served_models["multi-vector"], engine="onnxruntime")
    served = ServedMultiVectorEmbedder("a", model)
    with pytest.raises(Refusal, match="25,200,000 numbers"):
        asyncio.run(served.embed_all(Call(served, None, 1, {}), ["a"] * 420_000, "query", True))


def test_rerank_by_max_sim(answer, served_models):
    model = bert_jax.load(served_models["multi-vector"], engine="onnxruntime")
    query, documents = "the cat", ["on the mat", "cats sat", "cat cat"]
    expected = model.rank(query, documents)
    assert len({round(one["score"], 4) for one in expected}) == 3

    def assert_ranked(ranked, name):
        assert [one["index"] for one in ranked] == [one["corpus_id"] for one in expected]
        scores = [one["score"] for one in expected]
        np.testing.assert_allclose([one[name] for one in ranked], scores, rtol=1e-5)

    asked = {"query": query, "texts": documents}
    assert_ranked(answer("multi-vector", "/rerank", asked), "score")
    assert_ranked(answer("multi-vector", "/rerank", asked | {"raw_scores": True}), "score")
    for version in "12":
        output = answer("multi-vector", f"/v{version}/rerank", {"query": query, "documents": documents})
        assert_ranked(output["results"], "relevance_score")
    asked = {"queries": "cat mats", "reranker": "multi-vector", "explain": True}
    (hits,) = answer("index", "/search", asked)["results"]
    first = model.rank("cat mats", [hit["text"] for hit in hits])
    assert [hit["rankings"]["reranker"]["rank"] for hit in hits] == [1, 2]
    assert [one["corpus_id"] for one in first] == [0, 1]


def test_embeddings_of_openai(answer, vectors):
    for path in ("/v1/embeddings", "/embeddings"):
        output = answer("embedder", path, {"input": TEXTS, "model": "any", "encoding_format": "float"})
        np.testing.assert_allclose([row["embedding"] for row in output["data"]], vectors, atol=1e-6)
        assert output["object"] == "list" and output["usage"]["total_tokens"] == 9 + 4


def test_zero_shot(answer, ask, served_models):
    asked = {"candidate_labels": "cats, mats", "hypothesis_template": "on {} ."}
    for name, open_model in (("classifier", bert_jax.Classifier), ("embedder", bert_jax.Embedder)):
        model = open_model.load(served_models[name], engine="onnxruntime")
        ranked = model.zero_shot(TEXTS, ["cats", "mats"], hypothesis_template="on {} .")
        expected = [[(label.label, pytest.approx(label.score, abs=1e-5)) for label in one] for one in ranked]
        for inputs, wanted in ((TEXTS, expected), (TEXTS[0], expected[0])):
            output = answer(name, "/", {"inputs": inputs, "parameters": asked})
            shown = [output] if isinstance(inputs, str) else output
            got = [[(label["label"], label["score"]) for label in one] for one in shown]
            assert (got[0] if isinstance(inputs, str) else got) == wanted
    for name, change, message in (
        ("classifier", {"candidate_labels": []}, "at least one label"),
        ("classifier", {"hypothesis_template": "none"}, "must hold {} once"),
        ("classifier", {"top_k": 1}, "top_k"),
        ("embedder", {"multi_label": True}, "leave multi_label out"),
    ):
        status, output = ask(name, "/", {"inputs": TEXTS, "parameters": asked | change})
        assert status in (400, 422) and message in json.dumps(output)


def test_the_queue_counts_every_pair_of_a_text_and_a_label(served_models):
    counted = []

    class Counting:
        async def compute(self, pipeline, texts, most_tokens):
            counted.extend(texts)
            inputs = pipeline.preprocess(texts)
            return [*pipeline.postprocess(inputs, pipeline.model.run(inputs.rows, pipeline.computation))]

    model = bert_jax.Classifier.load(served_models["classifier"], engine="onnxruntime")
    candidates = CandidateLabels.read(["cats", "mats", "the cat"], "on {} .")
    ranked = asyncio.run(ServedClassifier("a", model).zero_shot(Counting(), TEXTS, candidates))
    assert len(counted) == len(TEXTS) * 3
    assert ranked == model.zero_shot(TEXTS, ["cats", "mats", "the cat"], hypothesis_template="on {} .")


def test_similarity(answer, vectors):
    asked = {"source_sentence": TEXTS[0], "sentences": TEXTS[::-1]}
    cosines = answer("embedder", "/similarity", {"inputs": asked})
    np.testing.assert_allclose(cosines, [vectors[0] @ vectors[1], 1], atol=1e-6)


def test_rerank(answer, served_models):
    asked = {"query": "the cat", "texts": ["on the mat", "cats sat"], "return_text": True}
    ranked = answer("reranker", "/rerank", asked)
    model = bert_jax.load(served_models["reranker"], engine="onnxruntime")
    scores = model.predict([(asked["query"], text) for text in asked["texts"]])
    assert [one["index"] for one in ranked] == np.argsort(scores)[::-1].tolist()
    for one in ranked:
        assert one["text"] == asked["texts"][one["index"]]
        assert one["score"] == pytest.approx(scores[one["index"]], abs=1e-6)
    raw = answer("reranker", "/rerank", asked | {"raw_scores": True})
    sigmoids = 1 / (1 + np.exp([-one["score"] for one in raw]))
    np.testing.assert_allclose(sigmoids, [one["score"] for one in ranked], atol=1e-6)


def test_predict(answer):
    single = answer("classifier", "/predict", {"inputs": TEXTS[0]})
    assert sorted(labels_of(single)) == ["bad", "good"]
    assert answer("classifier", "/predict", {"inputs": TEXTS[:1]}) == single
    pair = answer("classifier", "/predict", {"inputs": TEXTS})
    assert labels_of(pair) and pair != single
    batch = answer("classifier", "/predict", {"inputs": [[TEXTS[0]], TEXTS, [TEXTS[1]]]})
    assert len(batch) == 3
    for scored, expected in zip(batch, (single, pair), strict=False):
        assert labels_of(scored) == labels_of(expected)
        assert scored[0]["score"] == pytest.approx(expected[0]["score"], abs=1e-6)


def test_tokenize_and_decode(answer):
    (tokens,) = answer("embedder", "/tokenize", {"inputs": "cats sat"})
    assert [token["text"] for token in tokens] == ["[CLS]", "cat", "##s", "sat", "[SEP]"]
    assert [token["special"] for token in tokens] == [True, False, False, False, True]
    assert [(token["start"], token["stop"]) for token in tokens[1:4]] == [(0, 3), (3, 4), (5, 8)]
    ids = [token["id"] for token in tokens]
    assert answer("embedder", "/decode", {"ids": ids}) == ["cats sat"]
    assert answer("embedder", "/decode", {"ids": [ids, ids], "skip_special_tokens": False}) == 2 * [
        "[CLS] cat ##s sat [SEP]"
    ]
    (tokens,) = answer("embedder", "/tokenize", {"inputs": ["cats sat"], "add_special_tokens": False})
    assert [token["id"] for token in tokens] == ids[1:-1]
    (tokens,) = answer("embedder", "/tokenize", {"inputs": "cats", "prompt_name": "query"})
    assert [token["text"] for token in tokens] == ["[CLS]", "the", "cat", "##s", "[SEP]"]


def test_info_and_health(answer):
    assert answer("", "/health") == {"status": "ok"}
    about = answer("classifier", "/info")
    assert about["model_id"] == "classifier" and about["max_input_length"] == 16
    assert about["model_type"] == {"classifier": {"id2label": {"0": "bad", "1": "good"},
                                                  "label2id": {"bad": 0, "good": 1}}}  # fmt: skip
    assert answer("embedder", "/info")["model_type"] == {"embedding": {"pooling": "mean"}}


def test_the_highest_precision_that_is_told_can_be_asked_for(answer):
    """The server's page offers it."""
    told = {about["name"]: about.get("highest_precision") for about in answer("", "/models")["models"]}
    assert told["classifier"] == 0.951 and told["tagger"] == 0 and told["embedder"] is None
    asked = {"inputs": TEXTS, "min_precision": told["classifier"]}
    assert [found["abstained"] for found in answer("classifier", "/classify", asked)["results"]] == [
        False
    ] * 2


@pytest.mark.parametrize(
    "given, is_right",
    [("Bearer KEY", True), ("bearer KEY", True), ("BEARER  KEY", True), ("KEY", False), ("Basic KEY", False),
     ("Bearer", False), ("Bearer KEYS", False), ("", False)],
)  # fmt: skip
def test_a_key_follows_its_scheme(given, is_right):
    application = Application({}, ServeSettings(api_key="KEY"))
    with nullcontext() if is_right else pytest.raises(Refusal, match="Authorization: Bearer KEY"):
        application.check_key({"authorization": given})


@pytest.mark.parametrize(
    "model, path, body, status, words",
    [
        ("embedder", "/embed", {"inputs": []}, 400, "no text"),
        ("embedder", "/embed", {"input": "cats"}, 422, "inputs"),
        ("embedder", "/embed", {"inputs": TEXTS, "dimensions": 99}, 422, "99"),
        ("embedder", "/embed", {"inputs": "the " * 20, "truncate": False}, 422, "16 tokens"),
        ("classifier", "/embed", {"inputs": "cats"}, 424, "embedder"),
        ("embedder", "/tokenize", {"inputs": "cats", "prompt_name": "quary"}, 422, "query"),
        ("classifier", "/tokenize", {"inputs": "cats", "prompt_name": "query"}, 422, "no prompts"),
        ("classifier", "/classify", {"inputs": "cats", "min_precision": 0.96}, 422, "0.951"),
        ("", "/embed", None, 405, "POST"),
        ("reranker", "/v1/rerank", {"query": "cat", "documents": TEXTS, "max_tokens_per_doc": 3}, 422, "16 tokens"),
        ("", "/v1/embeddings", {"input": "cats", "model": "classifier"}, 424, "classifier is not"),
    ],
)  # fmt: skip
def test_what_is_refused(ask, model, path, body, status, words):
    code, output = ask(model, path, body)
    assert code == status and words in json.dumps(output)
