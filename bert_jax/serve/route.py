"""The routes of the server, as data: what each reads, which models answer it, and the function that does."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import msgspec

from bert_jax import __version__
from bert_jax.core.registry import Registry
from bert_jax.serve.call import Call
from bert_jax.serve.requests import Refusal

# Each file has ROUTES, and `error_body`, which says how its clients are told of an error.
DIALECTS = Registry("bert_jax.serve.dialects", "dialect", members=("ROUTES", "error_body"))
ANY = (
    "embedder",
    "sparse-embedder",
    "multi-vector-embedder",
    "reranker",
    "classifier",
    "tagger",
    "question-answerer",
    "masked-lm",
    "index",
)
TEXT_MODELS = ANY[:-1]
PAIR_SCORERS = ("reranker", "multi-vector-embedder")

DESCRIPTION = (
    "Every route answers for the only model that fits. If several are served, it stands below /models/NAME: "
    "/models/minilm/embed."
)
HEADERS = {
    "x-total-time": "Milliseconds from the request to its answer.",
    "x-tokenization-time": "Milliseconds of tokenizing.",
    "x-queue-time": "Milliseconds of waiting.",
    "x-inference-time": "Milliseconds of computing.",
    "x-compute-tokens": "Tokens that were computed.",
    "x-truncated-texts": "Texts that were too long and were truncated.",
}
ERRORS = {
    "400": "The request is no JSON, or holds no text.", "401": "The API key is wrong.",
    "404": "No model that fits is served.", "413": "The body is too large.",
    "422": "A field is wrong.", "429": "Too much waits already.", "503": "The server stops, or is too slow.",
}  # fmt: skip


@dataclass(frozen=True)
class Route:
    path: str
    summary: str
    answer: Callable[[Call, Any], Awaitable[Any]]
    kinds: tuple[str, ...] = ANY  # of the models that can answer; (): the server itself answers
    body: Any = None  # the type of the request's JSON; None: it has no body
    result: Any = None  # that of the answer's JSON
    example: Any = None  # of a body

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    @cached_property
    def decoder(self) -> msgspec.json.Decoder | None:
        return msgspec.json.Decoder(self.body) if self.body else None


def read_dialects() -> dict[tuple[str, str], tuple[ModuleType, Route]]:
    """Return the dialect and the route of each (method, path)."""
    dialects = [DIALECTS[name] for name in DIALECTS.names()]
    routes: dict[tuple[str, str], tuple[Any, Route]] = {}
    for dialect in dialects:
        for route in dialect.ROUTES:
            if (key := (route.method, route.path)) in routes:
                raise ValueError(f"two routes {key}")
            routes[key] = dialect, route
    return routes


def tei_error_body(refusal: Refusal) -> dict[str, Any]:
    return {"error": str(refusal), "error_type": refusal.error_type}


def describe_server() -> dict[str, Any]:
    """Describe all routes as OpenAPI 3.1, from their types."""
    routes = [(dialect.__name__.split(".")[-1], route) for dialect, route in read_dialects().values()]
    types = {kind for _, route in routes for kind in (route.body, route.result) if kind not in (None, Any)}
    kinds = sorted(types, key=str)
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(kinds, schemas, strict=True)) | {Any: {}}
    paths: dict[str, Any] = {}
    for dialect, route in routes:
        headers = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in HEADERS.items()
        }
        operation: dict[str, Any] = {
            "summary": route.summary,
            "tags": [dialect],
            "x-models": list(route.kinds),
            "responses": {
                "200": {
                    "description": "The answer.",
                    "headers": headers if route.body else {},
                    "content": {"application/json": {"schema": schema_of[route.result]}},
                },
                **({code: {"description": text} for code, text in ERRORS.items()} if route.body else {}),
            },
        }
        if route.body:
            content = {"schema": schema_of[route.body], "example": route.example}
            operation["requestBody"] = {"required": True, "content": {"application/json": content}}
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "bert-jax serve", "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
