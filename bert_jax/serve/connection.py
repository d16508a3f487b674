"""A connection as uvicorn serves it, with limits for clients that send or read too slowly, too much, or nonsense."""

import asyncio
import http
from collections import deque
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MOST_HEAD_BYTES = 65_536
FRAMING = (b"content-length", b"transfer-encoding")  # headers that say where a body ends


class Flow(FlowControl):
    """Reads no further requests while some wait for the answers of earlier ones."""

    def __init__(self, transport: asyncio.Transport, pipeline: deque):
        super().__init__(transport)
        self.pipeline = pipeline

    def resume_reading(self) -> None:
        if not self.pipeline:
            super().resume_reading()


class HeadTooLarge(Exception):
    pass


class Connection(HttpToolsProtocol):
    patience = 60.0  # seconds for a head to arrive, for the rest of a body, and for a client to read on
    arriving_since: float | None = None  # when the request began that is not complete; None: none has
    head_bytes = 0  # of the request that is read
    held_bytes = 0  # that the parser got and has not told of
    unread_bytes, unread_since = 0, 0.0  # of answers, and since when they are as many
    reads_on = False  # whether the rest of the request is read by another parser
    running: RequestResponseCycle | None = (
        None  # the request that is answered; later ones are in the pipeline
    )
    last_response: bytes | None = None  # sent before it is closed, after the answers of complete requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        self.arriving_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.running and not self.running.response_complete:
            self.running.disconnected = True
            self.running.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self.last_response is not None:
            return
        self._unset_keepalive_if_required()
        if self.arriving_since is None:
            self.arriving_since = self.loop.time()
        self.held_bytes += len(data)
        try:
            self.parse(data)
            if self.held_bytes > MOST_HEAD_BYTES:
                raise HeadTooLarge
        except HeadTooLarge:
            self.refuse(431, f"the head of a request may have {MOST_HEAD_BYTES:,} bytes\n")
        except httptools.HttpParserCallbackError as error:
            too_large = isinstance(error.__context__, HeadTooLarge)
            self.refuse(431 if too_large else 400, "this is no HTTP request that is answered here\n")
        except httptools.HttpParserError:
            self.refuse(400, "this is no HTTP request\n")

    def parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self.read_on_as_http()

    def read_on_as_http(self) -> None:
        """Let a new parser read the body of a request that offers another protocol, as Java's client offers HTTP/2.

        The old one takes all that follows for the other protocol. The new one is told the length of the body first."""
        lines = [name + b": " + value for name, value in self.headers if name in FRAMING]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *lines, b"", b""]))
        self.reads_on = False

    def refuse(self, status: int, message: str) -> None:
        """Close the connection, which says nothing sensible, once the complete requests before are answered."""
        phrase = http.HTTPStatus(status).phrase
        self.last_response = (
            f"HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(message)}\r\nconnection: close\r\n\r\n{message}"
        ).encode()
        broken = self.cycle
        if broken and broken.more_body:
            if broken.response_started:  # it was answered before its end
                self.last_response = b""
            broken.disconnected = True
            broken.message_event.set()
            if self.pipeline and self.pipeline[0][0] is broken:
                self.pipeline.popleft()
        running = self.running
        if running is None or running is broken and broken.more_body or running.response_complete:
            self.send_last_response()

    def send_last_response(self) -> None:
        self.transport.write(self.last_response or b"")
        self.transport.close()

    def on_message_begin(self) -> None:
        if not self.reads_on:
            super().on_message_begin()
            self.head_bytes = 0

    def on_url(self, url: bytes) -> None:
        if not self.reads_on:
            self.add_to_head(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.reads_on:
            self.add_to_head(len(name) + len(value))
            super().on_header(name, value)

    def add_to_head(self, length: int) -> None:
        self.head_bytes += length
        self.held_bytes = 0
        if self.head_bytes > MOST_HEAD_BYTES:
            raise HeadTooLarge

    def on_headers_complete(self) -> None:
        if not self.reads_on:
            self.arriving_since = self.loop.time()
            super().on_headers_complete()
            self.reads_on = self.parser.should_upgrade()

    def on_body(self, body: bytes) -> None:
        self.held_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.reads_on and self.parser.should_upgrade():
            return
        self.held_bytes, self.arriving_since = 0, None
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        if self.arriving_since is not None:
            self.arriving_since = self.loop.time()
        nothing_waits = not self.pipeline
        super().on_response_complete()
        if self.last_response is not None and nothing_waits:
            self.send_last_response()

    def close_if_stuck(self) -> None:
        """Close the connection if its client lets the server wait for too long."""
        now = self.loop.time()
        if (unread := self.transport.get_write_buffer_size()) != self.unread_bytes:
            self.unread_bytes, self.unread_since = unread, now
        is_answering = self.running is not None and not self.running.response_complete
        if unread:
            if now - self.unread_since > self.patience:
                self.transport.abort()
        elif self.arriving_since is not None and not is_answering:  # noqa: SIM102
            if now - self.arriving_since > self.patience:
                self.transport.close()
