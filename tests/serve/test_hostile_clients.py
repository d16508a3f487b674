"""Clients that send slowly, never read, or leave: they take nothing from others, and in the end their connections."""

import itertools
import json
import re
import statistics
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.serve.hostile_heads import CONTENT, EMBED, GOOD
from tests.serve.processes import start_server
from tests.serve.raw_client import JSON_HEADERS, Closed, RawConnection, ask, head, post
from tests.support.served_models import arguments

pytestmark = pytest.mark.slow

PATIENCE = 3.0  # seconds, as the server is told
LATE = PATIENCE + 2.5  # it looks twice a second, and the machine may be busy
LARGE_ANSWER = post("/models/embedder/embed_all", {"inputs": ["the cat sat on the mat"] * 4000})
LONG = {"content-length": "1000000"}


@pytest.fixture(scope="module")
def server(served_models):
    models = arguments(served_models, "embedder")
    options = ["--engine", "onnxruntime", "--timeout", str(PATIENCE), "--max-queued-tokens", "1000000"]
    options += ["--max-body-bytes", "20000000"]
    server = start_server([*models, *options])
    server.sockets_without_clients = count_sockets(server)
    yield server
    code, printed = server.stop()
    assert code == 0 and "Traceback" not in printed, printed[-3000:]


def read_metric(server, name: str) -> float:
    found = re.search(
        rf"^{name} (.+)$", ask(server.port, head("GET", "/metrics")).body.decode(), re.MULTILINE
    )
    assert found
    return float(found[1])


def count_sockets(server) -> int:
    count = 0
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed since
            count += link.readlink().name.startswith("socket:")
    return count


def count_connections(server) -> int:
    return count_sockets(server) - server.sockets_without_clients


def until(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# What a client goes on to send byte by byte, and the answer that it gets before its end, 0: none.
DRIPS = {
    "nothing": (b"", itertools.repeat(b""), 0),
    "a head": (b"GET /health HTTP/1.1\r\n", itertools.cycle([b"a", b":", b"b", b"\r\n"]), 0),
    "a path": (b"GET /", itertools.repeat(b"a"), 0),
    "empty lines": (b"", itertools.repeat(b"\r\n"), 0),
    "a body": (head("POST", EMBED, JSON_HEADERS | LONG), itertools.repeat(b" "), 408),
    "chunks": (head("POST", EMBED, JSON_HEADERS | {"transfer-encoding": "chunked"}),
               itertools.repeat(b"1\r\n \r\n"), 408),
    "trailers": (head("POST", "/nothing", JSON_HEADERS | {"transfer-encoding": "chunked"}) + b"0\r\n",
                 itertools.cycle([b"a: b\r\n"]), 404),
    "a body that nobody reads": (head("POST", "/nothing", JSON_HEADERS | LONG), itertools.repeat(b" "), 404),
    "a body after a refusal": (head("POST", EMBED, LONG), itertools.repeat(b" "), 415),
}  # fmt: skip


@pytest.mark.ci
def test_slow_senders_are_closed_and_slow_down_nobody(server):
    began = time.monotonic()
    connections = {name: RawConnection(server.port) for name in DRIPS}
    ended, seconds = {}, []
    for name, connection in connections.items():
        connection.send(DRIPS[name][0])
    while connections and time.monotonic() < began + 2 * LATE:
        for name, connection in list(connections.items()):
            connection.send(next(DRIPS[name][1]))
            try:
                connection.receive(0.001)
            except TimeoutError:
                continue
            except Closed:
                ended[name] = time.monotonic() - began
                del connections[name]
        asked = time.monotonic()
        assert ask(server.port, GOOD).status == 200
        seconds.append(time.monotonic() - asked)
        time.sleep(0.05)
    assert not connections, f"still open: {list(connections)}"
    # A body that is not read to its end gets a second patience, after the answer.
    assert min(ended.values()) > PATIENCE and max(ended.values()) < 2 * LATE, ended
    assert all(ended[name] < LATE for name, (*_, status) in DRIPS.items() if status == 0), ended
    assert statistics.median(seconds) < 0.1


@pytest.mark.ci
def test_slow_bodies_get_an_answer(server):
    waiting = {name: RawConnection(server.port) for name, (*_, status) in DRIPS.items() if status}
    for name, connection in waiting.items():
        connection.send(DRIPS[name][0] + next(DRIPS[name][1]))
    for name, connection in waiting.items():
        assert connection.read_answer().status == DRIPS[name][2], name
        connection.socket.close()


@pytest.mark.ci
def test_a_slow_but_steady_client_is_served(server):
    with RawConnection(server.port) as connection:
        for part in (GOOD[:20], GOOD[20:-8], GOOD[-8:]):
            time.sleep(PATIENCE / 3)
            connection.send(part)
        assert connection.read_answer().status == 200
        time.sleep(PATIENCE * 1.5)  # between requests it may rest
        assert connection.ask(GOOD).status == 200


@pytest.mark.ci
def test_idle_connections_take_nothing(server):
    number = 300
    until(lambda: not count_connections(server), LATE)
    idle = [RawConnection(server.port) for _ in range(number)]
    for connection in idle[::2]:
        connection.send(GOOD[:30])
    until(lambda: count_connections(server) >= number, PATIENCE)
    seconds = []
    for _ in range(20):
        asked = time.monotonic()
        assert ask(server.port, GOOD).status == 200
        seconds.append(time.monotonic() - asked)
    assert statistics.median(seconds) < 0.1
    until(lambda: not count_connections(server), 2 * LATE)
    for connection in idle:
        connection.socket.close()


@pytest.mark.ci
def test_answers_that_nobody_reads_are_thrown_away(server):
    assert len(ask(server.port, LARGE_ANSWER).body) > 2_000_000
    until(lambda: not count_connections(server), LATE)
    memory = server.resident_bytes
    deaf = [RawConnection(server.port, receive_buffer=4096) for _ in range(2)]
    until(lambda: count_connections(server) == len(deaf), PATIENCE)
    for connection in deaf:
        connection.send(LARGE_ANSWER * 4)
    # On a busy machine the first one waits for their computation longer than the server allows.
    until(lambda: ask(server.port, GOOD).status == 200, 4 * PATIENCE)
    until(lambda: not count_connections(server), 4 * LATE)
    assert ask(server.port, GOOD).status == 200
    assert server.resident_bytes < memory + 200_000_000
    for connection in deaf:
        connection.socket.close()


@pytest.mark.ci
def test_a_client_that_reads_slowly_gets_its_answer(server):
    with RawConnection(
        server.port, receive_buffer=16_384
    ) as connection:  # so small that the answer outlasts the loop
        connection.send(LARGE_ANSWER)
        began = time.monotonic()
        while time.monotonic() < began + 1.5 * PATIENCE:
            connection.receive()
            time.sleep(0.2)
        assert len(connection.read_answer().json()) == 4000


@pytest.mark.parametrize("end", ["close", "reset", "half-close"])
@pytest.mark.parametrize("sent", [0, 10, len(GOOD) - len(CONTENT), len(GOOD) - 1, len(GOOD)])
def test_a_client_may_leave_at_any_moment(server, end, sent):
    for _ in range(10):
        connection = RawConnection(server.port)
        connection.send(GOOD[:sent])
        if end == "half-close":
            connection.socket.shutdown(1)
        else:
            connection.reset() if end == "reset" else connection.socket.close()
    assert ask(server.port, GOOD).status == 200
    until(lambda: not count_connections(server), 2)


def test_a_client_may_leave_in_the_middle_of_its_answer(server):
    for _ in range(3):
        connection = RawConnection(server.port, receive_buffer=4096)
        connection.send(LARGE_ANSWER * 2)
        connection.receive()
        connection.reset()
    assert ask(server.port, GOOD).status == 200
    until(lambda: not count_connections(server), 5)


def test_requests_of_clients_that_left_are_not_computed(server):
    until(lambda: read_metric(server, "te_queue_size") == 0, 5)
    rows = read_metric(server, "te_batch_next_size_sum")
    with RawConnection(server.port) as large:
        large.send(post(EMBED, {"inputs": ["the"] * 4000}))
        until(lambda: read_metric(server, "te_queue_size") == 1, 5)
        left = [RawConnection(server.port) for _ in range(40)]
        for connection in left:
            connection.send(post(EMBED, {"inputs": ["the cat"] * 10}))
        until(lambda: read_metric(server, "te_queue_size") == 41, 5)
        for connection in left:
            connection.socket.close()
        until(lambda: read_metric(server, "te_queue_size") <= 1, 5)
        assert len(large.read_answer().json()) == 4000
    assert ask(server.port, GOOD).status == 200
    # Before they left, some rows of theirs may have had a place in a batch of the large request.
    assert read_metric(server, "te_batch_next_size_sum") - (rows + 4000 + 1) < 40 * 10 / 2


@pytest.mark.parametrize("path", ["/tokenize", "/decode"])
def test_what_takes_long_without_the_model_lets_others_be_answered(server, path):
    body = {"inputs": "the " * 300_000} if path == "/tokenize" else {"ids": [[5, 6]] * 300_000}
    with RawConnection(server.port) as large:
        began = time.monotonic()
        large.send(post(f"/models/embedder{path}", body))
        seconds = []
        while not large.is_answering():
            asked = time.monotonic()
            assert ask(server.port, head("GET", "/health")).status == 200
            seconds.append(time.monotonic() - asked)
        took = time.monotonic() - began
        assert large.read_answer().status == 200
    assert len(seconds) > 3 and max(seconds) < 0.7 * took, (took, max(seconds))


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("/embed", [""] * 3_200_000),
        ("/embed_all", ["the cat sat on the mat the cat sat on the mat the cat"] * 250_000),
    ],
)
def test_an_answer_that_would_fill_the_memory_is_refused(server, path, texts):
    memory = server.resident_bytes
    answer = ask(
        server.port, post(f"/models/embedder{path}", json.dumps({"inputs": texts}, separators=",:").encode())
    )
    assert answer.status == 413 and "the answer would hold" in answer.json()["error"]
    assert server.resident_bytes < memory + 300_000_000
