"""What others' clients get from a server: `python client_checks.py URL [CHECK ...]`, where the clients are installed.

The server has the models of tests/support/served_models.py, another embedder called minilm, and the key in the
variable API_KEY. Written as JSON: the texts of each check, and the vectors that came back, by the name of the model.
"""

import base64
import json
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from unittest import mock

import numpy as np

KEY = os.environ.get("API_KEY", "")
TEXTS = ["the cat sat", "on the mat .", "cats", "a naïve façade, 日本語 😀", ""]
CLOSE = 1e-6
PROMPTS = {"query": "the ", "document": "on "}  # of the embedder
Vectors = dict[
    str, tuple[list[str], list[list[float]]]
]  # by the name of the model: texts, and a vector for each


@contextmanager
def raises(kind: type[Exception], *words: str):
    """What is done fails with this exception, whose text has these words."""
    try:
        yield
    except kind as error:
        assert type(error) is kind, f"{type(error)} instead of {kind}"
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def assert_close(vectors, expected) -> None:
    np.testing.assert_allclose(np.array(vectors), np.array(expected), atol=CLOSE)


def assert_lengths_are_one(vectors) -> None:
    assert_close(np.linalg.norm(vectors, axis=1), np.ones(len(vectors)))


def check_openai(url: str) -> Vectors:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
    vectors: Vectors = {}
    for name in ("embedder", "minilm"):
        answer = client.embeddings.create(model=name, input=TEXTS)  # base64, which the client decodes
        assert [row.index for row in answer.data] == list(range(len(TEXTS))) and answer.model == name
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
        vectors[name] = TEXTS, [list(row.embedding) for row in answer.data]
        assert_lengths_are_one(vectors[name][1])
        plain = client.embeddings.create(model=name, input=TEXTS, encoding_format="float")
        assert_close([row.embedding for row in plain.data], vectors[name][1])
    below = openai.OpenAI(base_url=f"{url}/models/embedder/v1", api_key=KEY, max_retries=0)
    (row,) = below.embeddings.create(model="text-embedding-3-small", input=TEXTS[0]).data
    assert_close(row.embedding, vectors["embedder"][1][0])
    (short,) = client.embeddings.create(model="embedder", input=TEXTS[0], dimensions=4).data
    cut = np.array(row.embedding[:4])
    assert_close(short.embedding, cut / np.linalg.norm(cut))
    assert {"embedder", "minilm", "reranker"} <= {model.id for model in client.models.list()}
    with raises(openai.AuthenticationError, "Bearer"):
        client.with_options(api_key="wrong").models.list()
    return vectors


def check_hugging_face(url: str) -> Vectors:
    from huggingface_hub import InferenceClient
    from huggingface_hub.errors import HfHubHTTPError

    def client(name: str, key: str = KEY) -> InferenceClient:
        return InferenceClient(model=f"{url}/models/{name}", token=key)

    embedder = client("embedder")
    rows = embedder.feature_extraction(TEXTS)
    assert_lengths_are_one(rows)
    prompted = embedder.feature_extraction(TEXTS[0], prompt_name="query")
    assert_close(prompted, embedder.feature_extraction(PROMPTS["query"] + TEXTS[0]))
    for form in ("float", "base64"):  # the client reads numbers, whatever it asks for
        assert_close(embedder.feature_extraction(TEXTS, encoding_format=form), rows)
    cosines = embedder.sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:])
    assert_close(cosines, rows[1:] @ rows[0])
    with raises(HfHubHTTPError, "truncation_direction"):
        embedder.feature_extraction(TEXTS, truncation_direction="left")

    classifier = client("classifier")
    labels = classifier.text_classification(TEXTS[0])
    assert {label.label for label in labels} == {"bad", "good"} and labels[0].score >= labels[1].score
    assert_close(sum(label.score for label in labels), 1)
    assert classifier.text_classification(TEXTS[0], top_k=1) == labels[:1]
    with raises(HfHubHTTPError, "top_k"):
        classifier.text_classification(TEXTS[0], top_k=0)

    for name in ("classifier", "embedder"):
        zero_shot = client(name).zero_shot_classification(
            TEXTS[0], ["cats", "mats"], hypothesis_template="on {} ."
        )
        assert {label.label for label in zero_shot} == {"cats", "mats"} and zero_shot[0].score >= zero_shot[
            1
        ].score

    tagger, text = client("tagger"), "the cat sat on the mat . cats"
    spans = tagger.token_classification(text, aggregation_strategy="simple")
    assert spans and {span.entity_group for span in spans} <= {"X", "Y"}
    assert all(text[span.start : span.end] == span.word and 0 < span.score <= 1 for span in spans)
    kept = [span for span in spans if span.entity_group != "X"]
    assert tagger.token_classification(text, ignore_labels=["X"]) == kept != spans
    with raises(HfHubHTTPError, "aggregation_strategy"):
        tagger.token_classification(text, aggregation_strategy="none")

    answerer, context = client("answerer"), "the cat sat on the mat ."
    scores = {}
    for missing in (None, False, True):
        answer = answerer.question_answering("cat", context, handle_impossible_answer=missing, top_k=1)
        assert context[answer.start : answer.end] == answer.answer
        scores[missing] = answer.score
    assert 0 < scores[True] < scores[False] == scores[None] <= 1

    masked = client("masked")
    fillings = masked.fill_mask("the [MASK] sat")
    assert len(fillings) == 5 and fillings[0].score >= fillings[-1].score
    assert all(filling.token_str and filling.sequence for filling in fillings)
    assert [f.token for f in masked.fill_mask("the [MASK] sat", top_k=2)] == [f.token for f in fillings[:2]]
    with raises(HfHubHTTPError, "401"):
        client("masked", "wrong").fill_mask("the [MASK] sat")
    return {"embedder": (TEXTS, rows.tolist())}


def check_cohere(url: str) -> Vectors:
    import cohere
    from cohere.errors import UnauthorizedError

    one, two = cohere.Client(KEY, base_url=url), cohere.ClientV2(KEY, base_url=url)
    rows = one.embed(texts=TEXTS, model="embedder", input_type="clustering").embeddings
    assert_lengths_are_one(rows)
    asked = {"texts": TEXTS, "model": "embedder"}
    for client in (one, two):
        for purpose, prompt in (("search_query", "query"), ("search_document", "document")):
            answer = client.embed(**asked, input_type=purpose, embedding_types=["float", "base64"])
            prompted = [PROMPTS[prompt] + text for text in TEXTS]
            expected = one.embed(texts=prompted, model="embedder", input_type="clustering").embeddings
            assert_close(answer.embeddings.float_, expected)
            decoded = [np.frombuffer(base64.b64decode(row), "<f4") for row in answer.embeddings.base64]
            assert_close(decoded, expected)
            assert answer.meta.billed_units.input_tokens > 0
    contents = [{"content": [{"type": "text", "text": text}]} for text in TEXTS[:2]]
    mixed = two.embed(inputs=contents, model="embedder", input_type="clustering", embedding_types=["float"])
    assert_close(mixed.embeddings.float_, rows[:2])

    documents = ["mats .", "the cat sat", "on the mat ."]
    for client in (one, two):
        ranked = client.rerank(model="reranker", query="cat", documents=documents).results
        assert sorted(result.index for result in ranked) == [0, 1, 2]
        scores = [result.relevance_score for result in ranked]
        assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
        best = client.rerank(model="reranker", query="cat", documents=documents, top_n=1).results
        assert [(b.index, b.relevance_score) for b in best] == [(ranked[0].index, scores[0])]
    texts = one.rerank(model="reranker", query="cat", documents=documents, return_documents=True).results
    assert [result.document.text for result in texts] == [documents[result.index] for result in ranked]
    with raises(UnauthorizedError, "API key"):
        cohere.ClientV2("wrong", base_url=url).rerank(model="reranker", query="cat", documents=documents)
    return {"embedder": (TEXTS, [list(row) for row in rows])}


def check_langchain(url: str) -> Vectors:
    import openai
    import tiktoken
    from langchain_openai import OpenAIEmbeddings

    asked = {"model": "embedder", "base_url": f"{url}/v1", "api_key": KEY, "max_retries": 0}
    embeddings = OpenAIEmbeddings(**asked, check_embedding_ctx_length=False)
    rows = embeddings.embed_documents(TEXTS)
    assert_close(embeddings.embed_query(TEXTS[0]), rows[0])
    assert len(OpenAIEmbeddings(**asked, check_embedding_ctx_length=False, dimensions=4).embed_query("")) == 4
    # The client's own tokenizer, with an encoding of single bytes: it would download the usual one.
    single_bytes = tiktoken.Encoding("bytes", pat_str=".", special_tokens={},
                                     mergeable_ranks={bytes([n]): n for n in range(256)})  # fmt: skip
    with (
        mock.patch.object(tiktoken, "get_encoding", lambda name: single_bytes),
        raises(openai.UnprocessableEntityError, "check_embedding_ctx_length=False"),
    ):
        OpenAIEmbeddings(**asked).embed_documents(TEXTS[:2])
    return {"embedder": (TEXTS, rows)}


def check_llama_index(url: str) -> Vectors:
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    embedding = TextEmbeddingsInference(
        model_name="embedder", base_url=f"{url}/models/embedder", auth_token=KEY, text_instruction="",
        query_instruction="", embed_batch_size=3,
    )  # fmt: skip
    texts = [text for text in TEXTS if text]
    rows = embedding.get_text_embedding_batch(texts)
    assert_close(embedding.get_query_embedding(texts[0]), rows[0])
    return {"embedder": (texts, rows)}


CHECKS: dict[str, Callable[[str], Vectors]] = {
    "openai": check_openai,
    "hugging_face": check_hugging_face,
    "cohere": check_cohere,
    "langchain": check_langchain,
    "llama_index": check_llama_index,
}


def main(url: str, *names: str) -> None:
    print(json.dumps({name: CHECKS[name](url) for name in names or CHECKS}))


if __name__ == "__main__":
    main(*sys.argv[1:])
