"""A connection as uvicorn serves it, with limits for clients that send or read too slowly or too much."""

import asyncio
from collections import deque
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

PIECE = 32_768  # bytes that are parsed at once
MOST_HEAD_BYTES = 2 * PIECE  # that may come without a request beginning, going on with its body, or ending


class Flow(FlowControl):
    """Reads no further requests while some wait for the answers of earlier ones."""

    def __init__(self, transport: asyncio.Transport, pipeline: deque):
        super().__init__(transport)
        self.pipeline = pipeline

    def resume_reading(self) -> None:
        if not self.pipeline:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    patience = 60.0  # seconds for a head to arrive, for the rest of a body, and for a client to read on
    arriving_since: float | None = None  # when the request began that is not complete; None: none has
    head_bytes = 0  # see MOST_HEAD_BYTES
    unread_bytes, unread_since = 0, 0.0  # of answers, and since when they are as many
    running: RequestResponseCycle | None = None  # what is answered; later requests are in the pipeline

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        self.arriving_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.running:  # uvicorn tells the newest request alone
            self.running.disconnected = True
            self.running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.arriving_since is None:
            self.arriving_since = self.loop.time()
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self.head_bytes += len(piece)
            try:
                self.parse(piece)
            except httptools.HttpParserError:
                self.send_400_response("this is no HTTP request that is answered here\n")
                return
            if self.head_bytes > MOST_HEAD_BYTES:
                self.send_400_response(f"the head of a request may have {MOST_HEAD_BYTES:,} bytes\n")
                return

    def parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Java's client offers HTTP/2 with each request, and the parser takes all that follows for that. A new one
            # gets the request without the offer.
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            if method == b"CONNECT":
                raise httptools.HttpParserError from None
            lines = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
            head = b"\r\n".join([b"%s %s HTTP/%s" % (method, self.url, version), *lines, b"", b""])
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parse(head + data[upgrade.args[0] :])

    def on_message_begin(self) -> None:
        self.head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if not self.parser.should_upgrade():
            self.arriving_since = self.loop.time()
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self.head_bytes, self.arriving_since = 0, None
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.arriving_since is not None:
            self.arriving_since = self.loop.time()
        super().on_response_complete()

    def close_if_stuck(self) -> None:
        """Close the connection if its client lets the server wait for too long."""
        now = self.loop.time()
        if (unread := self.transport.get_write_buffer_size()) != self.unread_bytes:
            self.unread_bytes, self.unread_since = unread, now
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if unread:
            if now - self.unread_since > self.patience:
                self.transport.abort()
        elif self.arriving_since is not None and not is_answering:  # noqa: SIM102
            if now - self.arriving_since > self.patience:
                self.transport.close()
