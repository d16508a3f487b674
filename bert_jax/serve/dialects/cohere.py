"""Embedding and reranking as in Cohere's API, versions 1 and 2."""

import uuid
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS
from bert_jax.serve.call import Call
from bert_jax.serve.dialects.openai import encode_base64
from bert_jax.serve.requests import Refusal, unprocessable
from bert_jax.serve.route import PAIR_SCORERS, Route

PROMPTS = {"search_query": QUERY_PROMPTS, "search_document": DOCUMENT_PROMPTS}
EMBEDDING_TYPES: dict[str, Any] = {"float": list, "base64": encode_base64}


def error_body(refusal: Refusal) -> dict[str, Any]:
    return {"message": str(refusal)}


Size = Annotated[int, msgspec.Meta(ge=1)]


class CohereEmbedRequest(msgspec.Struct):
    texts: list[str] | None = None
    inputs: list[Any] | None = None
    model: str | None = None
    input_type: str | None = None
    embedding_types: list[str] | None = None
    truncate: Literal["NONE", "START", "END"] = "END"
    output_dimension: Size | None = None


class CohereRerankRequest(msgspec.Struct):
    query: str
    documents: list[str | dict[str, Any]]
    model: str | None = None
    top_n: Size | None = None
    return_documents: bool = False
    max_tokens_per_doc: Size | None = None
    max_chunks_per_doc: Size | None = None
    rank_fields: list[str] | None = None


class Result(msgspec.Struct, omit_defaults=True):
    index: int
    relevance_score: float
    document: dict[str, str] | None = None


class CohereReranked(msgspec.Struct):
    id: str
    results: list[Result]
    meta: dict[str, Any]


class Embedded(msgspec.Struct):
    id: str
    embeddings: dict[str, list[Any]] | list[list[float]]
    texts: list[str]
    meta: dict[str, Any]


def meta(call: Call, version: str) -> dict[str, Any]:
    return {
        "api_version": {"version": version},
        "billed_units": {"input_tokens": call.tokens},
        "warnings": call.warnings,
    }


async def embed(call: Call, body: CohereEmbedRequest, version: str) -> dict[str, Any]:
    if body.truncate == "START":
        raise unprocessable('texts are truncated at their end: truncate must be "END" or "NONE"')
    texts = body.texts if body.texts is not None else read_inputs(body.inputs or [])
    types = body.embedding_types or ["float"]
    if unknown := [embedding_type for embedding_type in types if embedding_type not in EMBEDDING_TYPES]:
        raise unprocessable(
            f'embedding type "{unknown[0]:.40}" is not served; known: {", ".join(EMBEDDING_TYPES)}'
        )
    vectors = await call.model.embed(
        call, texts, prompts=PROMPTS.get(body.input_type or "", ()),
        dimensions=body.output_dimension, truncate=body.truncate == "END",
    )  # fmt: skip
    embeddings: Any = {embedding_type: EMBEDDING_TYPES[embedding_type](vectors) for embedding_type in types}
    by_type = version == "2" or body.embedding_types is not None
    return {
        "id": str(uuid.uuid4()),
        "response_type": "embeddings_by_type" if by_type else "embeddings_floats",
        "embeddings": embeddings if by_type else embeddings["float"],
        "texts": texts,
        "meta": meta(call, version),
    }


def read_inputs(inputs: list[Any]) -> list[str]:
    """Return the texts of version 2's `inputs`, each a list of contents."""
    texts = []
    for given in inputs:
        contents = given.get("content") if isinstance(given, dict) else None
        listed = contents if isinstance(contents, list) else []
        parts = [
            part["text"] for part in listed if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        if not parts or len(parts) < len(listed):
            raise unprocessable(
                'each of inputs must hold texts, as {"content": [{"type": "text", "text": ...}]}'
            )
        texts.append(" ".join(parts))
    return texts


async def rerank(call: Call, body: CohereRerankRequest, version: str) -> dict[str, Any]:
    longest = call.model.max_length
    if body.max_tokens_per_doc and body.max_tokens_per_doc < longest:
        raise unprocessable(
            f"max_tokens_per_doc: the model reads {longest} tokens of a query and a document; leave it out"
        )
    documents = [document_text(document, body.rank_fields) for document in body.documents]
    ranked = await call.model.rank(call, body.query, documents)
    results = []
    for n, score in ranked[: body.top_n]:
        shown = {"document": {"text": documents[n]}} if body.return_documents else {}
        results.append({"index": n, "relevance_score": score, **shown})
    return {"id": str(uuid.uuid4()), "results": results, "meta": meta(call, version)}


def document_text(document: str | dict[str, Any], fields: list[str] | None) -> str:
    if isinstance(document, str):
        return document
    texts = [document.get(name) for name in fields or ["text"]]
    if not all(isinstance(text, str) for text in texts):
        raise unprocessable('a document must be a text, or an object with a "text"')
    return " ".join(map(str, texts))


TEXTS = {"texts": ["the first text", "the second text"], "input_type": "search_document"}
QUERY = {"query": "where do cats land?", "documents": ["Fish swim.", "Cats land on their feet."]}
ROUTES = [
    *(
        Route(f"/v{version}/embed", "A vector for each text.", partial(embed, version=version), ("embedder",),
              CohereEmbedRequest, Embedded, TEXTS)
        for version in "12"
    ),
    Route(
        "/v2/rerank", "Documents by their relevance to a query, best first.", partial(rerank, version="2"),
        PAIR_SCORERS, CohereRerankRequest, CohereReranked, QUERY,
    ),
]  # fmt: skip
