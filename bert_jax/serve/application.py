"""The ASGI application: it finds the route and the model of a request, calls the route, and answers."""

import asyncio
import contextlib
import hmac
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from bert_jax.core.errors import suggest_name
from bert_jax.serve.call import Call
from bert_jax.serve.compute_queue import BatchRows, ComputeQueue
from bert_jax.serve.dialects import openai, own
from bert_jax.serve.metrics import ERRORS, PARTS, Metrics
from bert_jax.serve.requests import (
    Disconnected,
    Receive,
    Refusal,
    Response,
    Send,
    decode_json,
    json_response,
    read_body,
    refusal_of,
    unavailable,
)  # fmt: skip
from bert_jax.serve.route import Route, describe_server, read_dialects
from bert_jax.serve.served_model import ServedModel
from bert_jax.serve.settings import ServeSettings

if TYPE_CHECKING:  # it needs JAX
    from bert_jax.serve.adapters import AdapterFolder

LOG = logging.getLogger("bert_jax.serve")
FOLLOWING = 2.0  # seconds between two looks at the folder of adapters
PATIENCE = 0.2  # seconds before the server looks whether the client has left: most answers are there earlier
LOGGED = ("x-queue-time", "x-tokenization-time", "x-inference-time", "x-compute-tokens", "x-truncated-texts")
PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
}  # fmt: skip
PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


class Application:
    def __init__(
        self, models: Mapping[str, ServedModel], settings: ServeSettings, metrics: Metrics | None = None,
        adapters: "AdapterFolder | None" = None,
    ):  # fmt: skip
        self.models, self.settings, self.metrics = models, settings, metrics or Metrics()
        self.adapters = adapters
        self.queue = ComputeQueue(settings.batch_tokens, settings.queued_tokens, self.observe_batch)
        self.routes = read_dialects()
        self.paths = {path for _, path in self.routes}
        self.open_api = json_response(describe_server())
        self.page = {
            str(file.relative_to(PAGE)): Response(
                file.read_bytes(), PAGE_TYPES[file.suffix], headers=PAGE_HEADERS
            )
            for file in PAGE.rglob("*")
            if file.suffix in PAGE_TYPES
        }

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        elif scope["type"] == "http":
            await self.answer(scope, receive, send)

    async def live(self, receive: Receive, send: Send) -> None:
        """Start the queue when the server starts, and stop it when all requests are answered."""
        following = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.queue.start()
                if self.adapters:
                    following = asyncio.create_task(self.follow_adapters(self.adapters))
                await send({"type": "lifespan.startup.complete"})
            else:
                if following:
                    following.cancel()
                await asyncio.to_thread(self.queue.stop)
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def follow_adapters(self, adapters: "AdapterFolder") -> None:
        while True:
            await asyncio.sleep(FOLLOWING)
            try:
                self.models = await asyncio.to_thread(adapters.update, self.models)
            except Exception:  # such as a disk that fails: the others are served on, and it is tried again
                LOG.exception("the folder of adapters could not be read")

    async def answer(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, dialect_error, call = scope["method"], own.error_body, None
        try:
            name, path = split_path(scope["path"])
            if path.startswith("/v1/"):
                # Most who ask for a route that is not served are clients of OpenAI's.
                dialect_error = openai.error_body
            response = self.static_response(method, path, name, headers)
            if response is None:
                dialect, route = self.find_route("GET" if method == "HEAD" else method, path)
                dialect_error = dialect.error_body
                self.check_key(headers)
                call, response = await self.call_route(route, name, headers, receive, began)
        except Disconnected:
            return
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                LOG.exception("%s %s failed", method, scope["path"])
                refusal = Refusal(500, "the server failed; its log says why", "Internal")
            response = json_response(dialect_error(refusal), refusal.status, refusal.headers)
            failure = refusal.error_type.lower()
            self.metrics.count("te_request_failure", failure if failure in ERRORS else "internal")
        with contextlib.suppress(OSError):  # the client has left
            await response.send(send, method == "HEAD")
        if self.settings.logs_requests:
            self.log(scope, response, call, time.perf_counter() - began)

    def log(self, scope: dict[str, Any], response: Response, call: Call | None, seconds: float) -> None:
        """Write a line of JSON for a request."""
        record: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "client": (scope.get("client") or [None])[0],
            "method": scope["method"],
            "path": scope["path"],
            "status": response.status,
            "milliseconds": round(1e3 * seconds, 1),
        }
        if call and call.works:
            record |= {"model": call.model.name, "texts": sum(len(work.texts) for work in call.works)}
        record |= {
            name.removeprefix("x-"): value for name, value in response.headers.items() if name in LOGGED
        }
        print(orjson.dumps(record).decode(), file=sys.stderr, flush=True)

    def static_response(
        self, method: str, path: str, name: str | None, headers: dict[str, str]
    ) -> Response | None:
        """Return the answer that needs neither a model nor the key."""
        if method not in ("GET", "HEAD") or name not in (None, *self.models):
            return None
        if path == "/" and "text/html" in headers.get("accept", ""):
            return self.page["index.html"]
        if path in ("/", "/health", "/ping"):
            if not self.queue.is_open:
                raise unavailable("the server is stopping or broken; ask another one")
            return json_response({"status": "ok"})
        if path == "/metrics":
            self.metrics.set("te_queue_size", self.queue.requests)
            return Response(str(self.metrics).encode(), "text/plain; version=0.0.4")
        if path == "/openapi.json":
            return self.open_api
        if path == "/docs":
            return self.page["docs.html"]
        if path.startswith("/page/"):
            return self.page.get(path.removeprefix("/page/"))
        return None

    def find_route(self, method: str, path: str) -> tuple[Any, Route]:
        if (method, path) in self.routes:
            return self.routes[method, path]
        if path in self.paths:
            allowed = ", ".join(sorted({of for of, known in self.routes if known == path}))
            raise Refusal(405, f"{path} is answered to {allowed}", "Validation", {"allow": allowed})
        raise Refusal(404, f"no route {path:.100}; {suggest_name(path, sorted(self.paths), 'routes')}")

    def check_key(self, headers: dict[str, str]) -> None:
        key = self.settings.api_key
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode("latin-1"), os.fsencode(key or ""))
        if key and not (is_right and scheme.lower() == "bearer"):
            raise Refusal(
                401, "the API key is missing or wrong; send the header Authorization: Bearer KEY", "Unauthorized",
                {"www-authenticate": "Bearer"},
            )  # fmt: skip

    async def call_route(
        self, route: Route, name: str | None, headers: dict[str, str], receive: Receive, began: float
    ) -> tuple[Call, Response]:
        body = None
        if route.decoder:
            read = await read_body(receive, headers, self.settings.body_bytes, self.settings.timeout)
            body = decode_json(read, route.decoder)
        model = self.choose_model(route, name, getattr(body, "model", None))
        call = Call(model, self.queue, self.settings.timeout, self.models)
        if route.decoder is None:
            return call, json_response(await route.answer(call, None))
        try:
            result = await unless_disconnected(route.answer(call, body), receive)
        finally:
            method = "batch" if sum(len(work.texts) for work in call.works) > 1 else "single"
            self.metrics.count("te_request_count", method)
        response = json_response(result, headers=self.measure(call, began))
        self.metrics.count("te_request_success", method)
        return call, response

    def choose_model(self, route: Route, name: str | None, asked: str | None) -> ServedModel | None:
        """Return the model of a request: the one that its path or its body names, or else the only one that fits."""
        if not route.kinds:
            return None
        if name is not None and name not in self.models:
            raise Refusal(
                404, f'no model "{name:.60}"; {suggest_name(name, self.models, "served are")}', "Model"
            )
        fitting = [known for known, model in self.models.items() if model.kind in route.kinds]
        chosen = asked if name is None and asked in self.models else name
        if len(fitting) == 1 and chosen is None:
            chosen = fitting[0]
        if chosen in fitting:
            return self.models[chosen]
        if fitting and chosen is None:
            unknown = f'no model "{asked:.60}"; ' if asked else ""
            shown = f"{unknown}several models fit: {', '.join(fitting)}"
            raise Refusal(404, f"{shown}; ask one of them, as /models/{fitting[0]}{route.path}", "Model")
        kinds, shown = " or ".join(route.kinds), chosen or ", ".join(self.models)
        raise Refusal(424, f"{route.path} needs a model of the kind {kinds}, and {shown} is not", "Model")

    def measure(self, call: Call, began: float) -> dict[str, str]:
        """Return what the request took as headers, and add it to the metrics."""
        total = time.perf_counter() - began
        tokenizing = sum(work.tokenized for work in call.works)
        computing = sum(work.computed_at - work.computing_began for work in call.works)
        queue = sum(work.computing_began - work.began - work.tokenized for work in call.works)
        for name, seconds in (
            ("te_request_duration", total), ("te_request_tokenization_duration", tokenizing),
            ("te_request_queue_duration", queue), ("te_request_inference_duration", computing),
        ):  # fmt: skip
            self.metrics.observe(name, seconds)
        tokens = call.tokens
        self.metrics.count("te_request_tokens", by=tokens)
        self.measure_cpu()
        headers = {
            "x-total-time": f"{1e3 * total:.1f}",
            "x-tokenization-time": f"{1e3 * tokenizing:.1f}",
            "x-queue-time": f"{1e3 * queue:.1f}",
            "x-inference-time": f"{1e3 * computing:.1f}",
            "x-compute-tokens": str(tokens),
        }
        if truncated := call.truncated_texts:
            self.metrics.count("te_request_truncated_texts", by=truncated)
            headers |= {"x-truncated-texts": str(truncated)}
        return headers

    def measure_cpu(self) -> None:
        """Tell how the time of all cores is divided; what neither of the other threads takes is the model's."""
        http, tokenizer = time.thread_time(), self.queue.tokenizer_seconds
        model = time.process_time() - http - tokenizer
        for part, seconds in zip(PARTS, (http, tokenizer, model), strict=True):
            self.metrics.set("bert_jax_cpu_seconds", seconds, part)

    def observe_batch(self, parts: Sequence[BatchRows]) -> None:
        self.metrics.observe("te_batch_next_size", sum(len(part.rows) for part in parts))
        tokens = sum(part.work.count_tokens(n) for part in parts for n in part.rows)
        self.metrics.observe("te_batch_next_tokens", tokens)


def split_path(path: str) -> tuple[str | None, str]:
    """Return the name of the model in a path, None if it names none, and the route.

    >>> split_path("/models/minilm/embed"), split_path("/embed"), split_path("/models"), split_path("/models/minilm")
    (('minilm', '/embed'), (None, '/embed'), (None, '/models'), ('minilm', '/'))
    """
    if not path.startswith("/models/"):
        return None, path
    name, _, rest = path.removeprefix("/models/").partition("/")
    return unquote(name), f"/{rest}"


async def unless_disconnected(answer: Any, receive: Receive) -> Any:
    """Return the answer of a route. If the client leaves before, cancel it."""
    task = asyncio.ensure_future(answer)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    if done:
        return task.result()
    left = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Disconnected
    finally:
        task.cancel()
        left.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
