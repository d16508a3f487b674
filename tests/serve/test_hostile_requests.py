"""Requests that nobody should send: each gets an answer that is no 500, and the next good one is answered as ever."""

import collections
import itertools
import json
import random

import numpy as np
import pytest

from tests.serve.hostile_bodies import hostile_body
from tests.serve.hostile_heads import CONTENT, EMBED, GOOD, SHAPES, framed
from tests.serve.processes import start_server
from tests.serve.raw_client import Answer, Closed, RawConnection, ask, head, post
from tests.support.served_models import arguments

pytestmark = pytest.mark.slow

BODIES = 10_000


@pytest.fixture(scope="module")
def server(served_models):
    """A server of an embedder, a classifier and an index, which gives up a client after two seconds."""
    models = arguments(served_models, "embedder", "classifier", "index")
    server = start_server([*models, "--engine", "onnxruntime", "--timeout", "2"])
    yield server
    code, printed = server.stop()
    assert code == 0 and "Traceback" not in printed, printed[-3000:]


@pytest.fixture(scope="module")
def right(server):
    answer = ask(server.port, GOOD)
    assert answer.status == 200 and len(answer.json()[0]) == 8
    return answer.body


def embed(server, text: str) -> np.ndarray:
    return read_vector(ask(server.port, post(EMBED, {"inputs": text})))


def read_vector(answer: Answer) -> np.ndarray:
    """Return the vector of one text, rounded: what is computed beside it changes the last digits."""
    assert answer.status == 200
    return np.round(answer.json()[0], 4)


def are_different(vectors: list[np.ndarray]) -> bool:
    return all(np.abs(a - b).max() > 1e-4 for a, b in itertools.combinations(vectors, 2))


def are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.abs(one - other).max() < 1e-5)


def examples(server) -> list[tuple[str, object]]:
    """Return the path and a right body of each route, for each model that it has."""
    kinds = collections.defaultdict(list)
    for model in ask(server.port, head("GET", "/models")).json()["models"]:
        kinds[model["kind"]].append(model["name"])
    paths = ask(server.port, head("GET", "/openapi.json")).json()["paths"]
    found = [
        (f"/models/{name}{path}", about["post"]["requestBody"]["content"]["application/json"]["example"])
        for path, about in paths.items()
        if "post" in about
        for kind in about["post"]["x-models"]
        for name in kinds[kind]
    ]
    assert len(found) > 10
    return found


def attack(server, right: bytes, count: int, seed: int, large: float = 0.0) -> collections.Counter:
    """Send bodies on one connection, and a good request after each tenth."""
    routes, rng = examples(server), random.Random(seed)
    statuses: collections.Counter = collections.Counter()
    connection = RawConnection(server.port)
    for number in range(count):
        path, example = rng.choice(routes)
        body = hostile_body(rng, example, rng.random() < large)
        answer = connection.ask(post(path, body))
        assert answer.status in {200, 400, 404, 413, 422, 424, 429, 503}, (seed, number, path, body[:300])
        answer.json()
        statuses[answer.status] += 1
        if answer.headers.get("connection") == "close":
            connection = RawConnection(server.port)
        if number % 10 == 0:
            good = connection.ask(GOOD)
            assert good.status == 200 and good.body == right, (seed, number, path, body[:300])
    return statuses


def test_wrong_bodies_are_refused_or_answered(server, right):
    statuses = attack(server, right, 1500, seed=1)
    assert min(statuses[200], statuses[400], statuses[422]) > 50 and 503 not in statuses


@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_head_is_answered_and_harms_nobody(server, right, name):
    content, statuses = SHAPES[name]
    with RawConnection(server.port) as other:
        other.send(GOOD[:-5])
        with RawConnection(server.port) as connection:
            assert connection.ask(content).status in statuses
        other.send(GOOD[-5:])
        assert other.read_answer().body == right
    assert ask(server.port, GOOD).body == right


@pytest.mark.parametrize(
    "name", ["chunks and a length", "a length and chunks", "two lengths", "chunked twice"]
)
def test_what_may_hide_a_second_request_closes_the_connection(server, name):
    with RawConnection(server.port) as connection:
        assert connection.ask(SHAPES[name][0] + GOOD).status == 400
        assert connection.is_closed(2)


def test_a_request_that_offers_another_protocol_is_read_whole_and_so_is_the_next(server, right):
    """Java's client offers HTTP/2 with each of its requests."""
    for offer in SHAPES["an upgrade to HTTP/2"][0], SHAPES["an upgrade with chunks"][0]:
        for cut in (0, len(offer) - len(CONTENT) - 1, len(offer) - 3):
            with RawConnection(server.port) as connection:
                connection.send(offer[:cut])
                assert not connection.is_closed(0.05)
                connection.send(offer[cut:] + GOOD + offer)
                assert [connection.read_answer().body for _ in range(3)] == [right] * 3


def test_a_body_is_asked_for_if_the_client_waits_for_that(server, right):
    with RawConnection(server.port) as connection:
        connection.send(framed(f"content-length: {len(CONTENT)}", "expect: 100-continue", content=b""))
        while b"\r\n\r\n" not in connection.unread:
            connection.receive()
        assert connection.unread == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.send(CONTENT)
        assert connection.read_answer().body == right


def test_heads_are_answered_like_their_bodies_but_without_them(server):
    with RawConnection(server.port) as connection:
        for path in ("/health", "/models", "/models/embedder/info", "/docs", "/nothing"):
            asked, told = connection.ask(head("GET", path)), connection.ask(head("HEAD", path))
            assert told.status == asked.status and told.body == b""
            assert told.headers["content-length"] == str(len(asked.body))
        assert connection.ask(head("HEAD", EMBED)).status == 405


def test_pipelined_requests_are_answered_in_their_order(server):
    texts = [f"{'the ' * (n % 3)}{['cat', 'sat', 'mat', 'on'][n % 4]}" for n in range(60)]
    wanted = [embed(server, text) for text in texts]
    assert are_different(wanted[:12])
    large = post(EMBED, {"inputs": ["the cat sat"] * 1000})  # takes the longest, and comes first
    with RawConnection(server.port) as one, RawConnection(server.port) as two:
        one.send(large + b"".join(post(EMBED, {"inputs": text}) for text in texts))
        two.send(b"".join(post(EMBED, {"inputs": text}) for text in reversed(texts)))
        assert len(one.read_answer().json()) == 1000
        assert all(are_equal(read_vector(one.read_answer()), vector) for vector in wanted)
        assert all(are_equal(read_vector(two.read_answer()), vector) for vector in reversed(wanted))


@pytest.mark.parametrize(
    "nonsense",
    [
        b"nonsense\r\n\r\n",
        framed("content-length: -1"),
        framed("transfer-encoding: chunked", content=b"5\r\n{"),
        head("GET", "/" + "a" * 200_000),
    ],
    ids=["no head", "a wrong length", "a broken chunk", "a long path"],
)
def test_nonsense_after_requests_ends_the_connection(server, right, nonsense):
    """What was answered before is right, what comes after is not read, and others notice nothing."""
    answers: list[Answer] = []
    with RawConnection(server.port) as connection, RawConnection(server.port) as other:
        other.send(GOOD[:-5])
        connection.send(GOOD + nonsense + b"zz\r\n" + GOOD)
        with pytest.raises(Closed):
            while True:
                answers.append(connection.read_answer())
        other.send(GOOD[-5:])
        assert other.read_answer().body == right
    *before, last = answers
    assert last.status == 400 and [answer.body for answer in before] in ([], [right])


def test_a_flood_of_pipelined_requests_waits_outside(server, right):
    """The server reads no more of them than it answers."""
    before, sent = server.resident_bytes, 0
    with RawConnection(server.port) as connection:
        connection.socket.settimeout(0.5)
        flood = head("GET", "/health") * 2000
        with pytest.raises(TimeoutError):
            while sent < 200_000_000:  # its answers are not read
                sent += connection.socket.send(flood)
        assert ask(server.port, GOOD).body == right
    assert sent < 30_000_000 and server.resident_bytes - before < 50_000_000


@pytest.mark.long
def test_ten_thousand_wrong_bodies_for_models_of_every_kind(served_models):
    models = arguments(served_models)
    # Some of the large bodies take longer to compute than the server allows.
    server = start_server([*models, "--engine", "onnxruntime", "--timeout", "15"])
    try:
        right = ask(server.port, GOOD).body
        statuses = attack(server, right, BODIES, seed=2)
        assert statuses[200] > 1000 and statuses[422] > 1000 and 503 not in statuses
        large = attack(server, right, 150, seed=3, large=1.0)
        print(json.dumps(statuses), json.dumps(large))
        assert large[200] > 20
    finally:
        code, printed = server.stop()
    assert code == 0 and "Traceback" not in printed, printed[-3000:]
