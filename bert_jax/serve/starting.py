"""What a server answers before its models are loaded: 503, so that a probe learns that it is starting."""

import select
import socket
import threading
import time
from typing import Self

BODY = b'{"status": "starting", "error": "the models are being loaded; try again soon", "error_type": "Unhealthy"}'
HEADS = (
    "HTTP/1.1 503 Service Unavailable", "content-type: application/json", f"content-length: {len(BODY)}",
    "retry-after: 1", "connection: close",
)  # fmt: skip
ANSWER = "".join(f"{line}\r\n" for line in (*HEADS, "")).encode() + BODY
PATIENCE = 1.0  # seconds for a request to arrive
PAUSE = 0.05  # seconds after an error, so that one that stays does not take a core
LONGEST = 1 << 16  # bytes that are read of a request, so that the client can send it


class StartingAnswers:
    """Answers all requests on a socket so, in a thread, until it is told to stop."""

    def __init__(self, listener: socket.socket):
        self.listener = listener
        self.told, self.tells = socket.socketpair()

    def __enter__(self) -> Self:
        threading.Thread(target=self.run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave what is not accepted yet to others."""
        self.tells.close()

    def run(self) -> None:
        with self.told:
            while self.told not in select.select([self.listener, self.told], [], [])[0]:
                try:
                    connection, _ = self.listener.accept()
                    with connection:
                        connection.settimeout(PATIENCE)
                        connection.recv(LONGEST)
                        connection.sendall(ANSWER)
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(LONGEST)
                except OSError:  # the client has left, another process took it, or no file is free
                    time.sleep(PAUSE)
