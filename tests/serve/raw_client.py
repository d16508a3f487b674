"""An HTTP client that sends any bytes, and reads answers strictly."""

import contextlib
import json
import re
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 20.0  # seconds for an answer: a server that takes longer hangs
JSON_HEADERS = {"content-type": "application/json"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Closed(Exception):
    """The server closed the connection instead of an answer."""


def head(
    method: str, path: str, headers: Mapping[str, str] | None = None, version: str = "HTTP/1.1"
) -> bytes:
    lines = [f"{method} {path} {version}", "host: test"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def post(path: str, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a whole request with a body: bytes, or what becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    about = JSON_HEADERS | {"content-length": str(len(content))} | dict(headers or {})
    return head("POST", path, about) + content


class RawConnection:
    def __init__(self, port: int, receive_buffer: int = 0):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self.unread = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, content: bytes) -> None:
        """Send all, unless the server closes the connection before."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before
            self.socket.sendall(content)

    def ask(self, content: bytes, method: str = "") -> Answer:
        self.send(content)
        return self.read_answer(method or content[:5].split(b" ")[0].decode("latin-1"))

    def read_answer(self, method: str = "GET") -> Answer:
        """Read one answer; those that only announce another are left out."""
        while True:
            status, headers = self._read_head()
            if status >= 200:
                break
        assert "transfer-encoding" not in headers
        length = 0 if method == "HEAD" else int(headers["content-length"])
        while len(self.unread) < length:
            self.receive()
        body, self.unread = self.unread[:length], self.unread[length:]
        return Answer(status, headers, body)

    def _read_head(self) -> tuple[int, dict[str, str]]:
        while (end := self.unread.find(b"\r\n\r\n")) < 0:
            self.receive()
        first, *lines = self.unread[:end].decode("latin-1").split("\r\n")
        self.unread = self.unread[end + 4 :]
        found = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Z][A-Za-z -]*", first)
        assert found, first
        fields = [line.split(": ", 1) for line in lines]
        headers = dict(fields)
        assert len(headers) == len(fields), lines
        return int(found[1]), headers

    def receive(self, seconds: float = PATIENCE) -> None:
        """Read what comes next."""
        self.socket.settimeout(seconds)
        try:
            part = self.socket.recv(1 << 20)
        except ConnectionResetError:
            part = b""
        finally:
            self.socket.settimeout(PATIENCE)
        if not part:
            raise Closed
        self.unread += part

    def is_closed(self, seconds: float) -> bool:
        """Whether the server closes the connection within some seconds, and sends nothing before."""
        try:
            self.receive(seconds)
        except Closed:
            return True
        except TimeoutError:
            return False
        raise AssertionError(self.unread[:200])

    def is_answering(self) -> bool:
        """Whether a part of an answer has come."""
        return bool(self.unread or select.select([self.socket], [], [], 0)[0])

    def reset(self) -> None:
        """Close with a reset, as a process that is killed does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def ask(port: int, content: bytes) -> Answer:
    """Send a request on a connection of its own."""
    with RawConnection(port) as connection:
        return connection.ask(content)


def is_refused(port: int) -> bool:
    try:
        RawConnection(port).socket.close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False
