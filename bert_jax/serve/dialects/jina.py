"""Reranking as in Jina's API, which shares its route with version 1 of Cohere's: an answer has the fields of both."""

from typing import Any

import msgspec

from bert_jax.serve.call import Call
from bert_jax.serve.dialects import cohere
from bert_jax.serve.dialects.cohere import CohereRerankRequest, Result
from bert_jax.serve.requests import Refusal
from bert_jax.serve.route import PAIR_SCORERS, Route


def error_body(refusal: Refusal) -> dict[str, Any]:
    return {"detail": str(refusal), "message": str(refusal)}


class JinaReranked(msgspec.Struct):
    id: str
    model: str
    usage: dict[str, int]
    results: list[Result]
    meta: dict[str, Any]


async def rerank(call: Call, body: CohereRerankRequest) -> dict[str, Any]:
    answer = await cohere.rerank(call, body, "1")
    return answer | {"model": call.model.name, "usage": {"total_tokens": call.tokens}}


ROUTES = [
    Route(
        "/v1/rerank", "Documents by their relevance to a query, best first.", rerank, PAIR_SCORERS, CohereRerankRequest,
        JinaReranked, cohere.QUERY,
    )
]  # fmt: skip
