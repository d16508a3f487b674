"""A route of the server, as data: what it reads, which models answer it, and the function that does."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from bert_jax.core.registry import Registry
from bert_jax.serve.call import Call
from bert_jax.serve.refusal import Refusal

# Each file has ROUTES, and `error_body`, which says how its clients are told of an error.
DIALECTS = Registry("bert_jax.serve.dialects", "dialect", members=("ROUTES", "error_body"))
ANY = ("embedder", "reranker", "classifier", "tagger", "question-answerer", "masked-lm", "index")
TEXT_MODELS = ANY[:-1]


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
