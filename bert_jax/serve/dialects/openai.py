"""The embeddings of OpenAI's API."""

import base64
import time
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from bert_jax.serve.call import Call
from bert_jax.serve.dialects.tei import Inputs, listed_inputs
from bert_jax.serve.requests import Refusal
from bert_jax.serve.route import Route

STARTED = int(time.time())
TYPES = {401: "authentication_error", 429: "rate_limit_error"}


def error_body(refusal: Refusal) -> dict[str, Any]:
    of_server = "server_error" if refusal.status >= 500 else "invalid_request_error"
    error_type = TYPES.get(refusal.status, of_server)
    return {"error": {"message": str(refusal), "type": error_type, "param": None, "code": refusal.status}}


class EmbeddingsRequest(msgspec.Struct):
    input: Inputs
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Embedding(msgspec.Struct):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(msgspec.Struct):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


async def embeddings(call: Call, body: EmbeddingsRequest) -> dict[str, Any]:
    # As OpenAI's own, the vectors have length 1, shortened ones too.
    vectors = await call.model.embed(call, listed_inputs(body.input), dimensions=body.dimensions)
    rows = encode_base64(vectors) if body.encoding_format == "base64" else list(vectors)
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)],
        "model": call.model.name,
        "usage": {"prompt_tokens": call.tokens, "total_tokens": call.tokens},
    }


def encode_base64(vectors: np.ndarray) -> list[str]:
    """Encode each vector's bytes, little-endian float32."""
    return [base64.b64encode(row.tobytes()).decode() for row in np.asarray(vectors, "<f4")]


async def models(call: Call, _: None) -> dict[str, Any]:
    listed = [
        {"id": name, "object": "model", "created": STARTED, "owned_by": "bert-jax"} for name in call.models
    ]
    return {"object": "list", "data": listed}


EXAMPLE = {"input": ["the first text", "the second text"]}
ROUTES = [
    Route(
        path,
        "A vector for each text.",
        embeddings,
        ("embedder",),
        EmbeddingsRequest,
        EmbeddingsResponse,
        EXAMPLE,
    )
    for path in ("/v1/embeddings", "/embeddings")
] + [Route("/v1/models", "The models that are served.", models, (), result=dict[str, Any])]
