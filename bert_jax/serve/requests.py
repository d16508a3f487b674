"""Requests as the server reads them, and what it writes: responses, or a refusal."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from bert_jax.core.errors import BertJaxError, one_line
from bert_jax.search.segment_files import DamagedFileError

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
JSON = "application/json"


class Refusal(Exception):
    """A request that is not answered: its HTTP status, one line for people, and TEI's name for the type of error."""

    def __init__(
        self,
        status: int,
        message: object,
        error_type: str = "Validation",
        headers: dict[str, str] | None = None,
    ):
        super().__init__(one_line(message))
        self.status, self.error_type, self.headers = status, error_type, headers or {}


def unprocessable(message: object) -> Refusal:
    return Refusal(422, message)


def overloaded(message: object) -> Refusal:
    return Refusal(429, message, "Overloaded", {"retry-after": "1"})


def unavailable(message: object) -> Refusal:
    return Refusal(503, message, "Unhealthy", {"retry-after": "1"})


def refusal_of(error: Exception) -> Refusal | None:
    """Return what a client is told of an error; None if the error is the server's own."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, DamagedFileError):
        return unavailable(error)
    return unprocessable(error) if isinstance(error, BertJaxError) else None


@dataclass
class Response:
    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, send: Send, is_head: bool = False) -> None:
        headers = {"content-type": self.content_type, "content-length": str(len(self.body))} | self.headers
        encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if is_head else self.body})


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), JSON, status, headers or {})


async def read_body(receive: Receive, headers: dict[str, str], most: int, timeout: float) -> bytes:
    """Return the body of a request; refuse one that is too large, too slow, or not plain JSON."""
    if headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "compressed bodies are not read; send plain JSON", "Body")
    content_type = headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type != JSON and not content_type.endswith("+json"):
        raise Refusal(415, f"the content type must be {JSON}", "Body")
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(timeout):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part = message.get("body", b"")
                size += len(part)
                if size > most:
                    raise too_large(most)
                parts.append(part)
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {timeout:g} seconds", "Body") from None


def too_large(most: int) -> Refusal:
    return Refusal(413, f"the body is larger than {most:,} bytes; send fewer texts at a time", "Body")


class Disconnected(Exception):
    """The client has left."""


def decode_json(body: bytes, decoder: msgspec.json.Decoder) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refusal(422, f"{error}", "Validation") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, f"the body is no JSON: {error}", "Body") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply", "Body") from None
