"""A server that is told to stop answers what it has accepted, and nothing of what it answered stays."""

import contextlib
import random
import re
import signal
import threading
import time

import pytest

from tests.serve.hostile_heads import EMBED, GOOD
from tests.serve.processes import start_server
from tests.serve.raw_client import Closed, RawConnection, ask, head, is_refused, post
from tests.support.served_models import arguments

pytestmark = pytest.mark.slow

WORK = post(EMBED, {"inputs": ["the cat sat on the mat"] * 300})


@pytest.fixture(scope="module")
def model(served_models):
    """An embedder and the engine for it, as the command takes them."""
    return [*arguments(served_models, "embedder"), "--engine", "onnxruntime"]


def read_metrics(server, pattern: str) -> int:
    """Return the sum of the numbers that a pattern finds."""
    metrics = ask(server.port, head("GET", "/metrics")).body.decode()
    return sum(map(int, re.findall(pattern, metrics, re.MULTILINE)))


def wait_for_queue(server, requests: int) -> None:
    """Wait until so many requests wait or are computed."""
    end = time.monotonic() + 10
    while True:
        if read_metrics(server, r"^te_queue_size (\d+)$") >= requests:
            return
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_all_requests_that_were_sent_before_the_signal_are_answered(model, number):
    server = start_server([*model, "--max-queued-tokens", "10000000"])
    idle, silent, begun = (RawConnection(server.port) for _ in range(3))
    assert idle.ask(GOOD).status == 200
    begun.send(WORK[:-100])
    waiting = [RawConnection(server.port) for _ in range(60)]
    pipelined = waiting[:10]
    for connection in waiting:
        connection.send(WORK)
    for connection in pipelined:
        connection.send(GOOD * 2)
    wait_for_queue(server, 20)
    last = RawConnection(server.port)  # accepted in the same moment, perhaps after the signal
    last.send(GOOD)
    server.signal(number)
    began = time.monotonic()
    while not is_refused(server.port):
        assert time.monotonic() < began + 2
    assert server.process.poll() is None
    begun.send(WORK[-100:])
    for connection in [*waiting, begun]:
        answer = connection.read_answer()
        assert answer.status == 200 and len(answer.json()) == 300
    for connection in pipelined:
        assert [connection.read_answer().status for _ in range(2)] == [200, 200]
    assert last.read_answer().status == 200
    for connection in (idle, silent, last, *waiting):
        assert connection.is_closed(2)
    code, printed = server.wait()
    assert code == 0 and printed.endswith("stopped: all requests that were accepted are answered\n")


def test_no_request_is_lost_under_load(model):
    """Clients ask one request after another. Only one whose connection was closed before its request may fail."""
    server = start_server(model)
    stopping, lost, answered = threading.Event(), [], []

    def client() -> None:
        try:
            with RawConnection(server.port) as connection:
                while True:
                    sent_before = not stopping.is_set()
                    connection.send(GOOD)
                    sent_before &= not stopping.is_set()
                    try:
                        answered.append(connection.read_answer().status)
                    except Closed:
                        if sent_before:
                            lost.append(connection)
                        return
        except ConnectionError:
            if not stopping.is_set():
                lost.append(None)

    clients = [threading.Thread(target=client) for _ in range(24)]
    for one in clients:
        one.start()
    time.sleep(1)
    stopping.set()
    server.signal()
    for one in clients:
        one.join()
    code, printed = server.wait()
    assert code == 0 and not lost and set(answered) == {200} and len(answered) > 200, printed


def test_nohup_keeps_it_answering(model):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as in `nohup bert-jax serve`, which inherits it
    try:
        server = start_server(model)
    finally:
        signal.signal(signal.SIGHUP, before)
    server.signal(signal.SIGHUP)
    time.sleep(0.5)
    assert ask(server.port, GOOD).status == 200
    code, printed = server.stop()
    assert code == 0 and printed.endswith("stopped: all requests that were accepted are answered\n"), printed


def test_a_second_signal_ends_it_at_once(model):
    server = start_server([*model, "--max-queued-tokens", "10000000"])
    waiting = [RawConnection(server.port) for _ in range(4)]
    for connection in waiting:
        connection.send(post(EMBED, {"inputs": ["the cat sat on the mat"] * 40_000}))
    wait_for_queue(server, 4)
    server.signal(signal.SIGINT)
    time.sleep(0.4)
    assert server.process.poll() is None
    server.signal(signal.SIGINT)
    code, printed = server.wait(5)
    assert code == 1 and "second signal" in printed and "Traceback" not in printed, printed
    assert "all requests that were accepted are answered" not in printed


def test_clients_that_never_read_do_not_keep_it_from_stopping(model):
    server = start_server([*model, "--timeout", "2"])
    deaf = RawConnection(server.port, receive_buffer=4096)
    deaf.send(post("/models/embedder/embed_all", {"inputs": ["the cat sat on the mat"] * 3000}) * 4)
    slow = RawConnection(server.port)
    slow.send(WORK[:-100])
    time.sleep(0.5)
    server.signal()
    code, printed = server.wait(8)
    assert code == 0 and printed.endswith("stopped: all requests that were accepted are answered\n"), printed


@pytest.mark.ci
def test_answers_that_are_cut_are_told(model):
    """A client that reads, but so slowly that the server does not wait for its last answer."""
    server = start_server([*model, "--timeout", "3", "--workers", "2"])
    with RawConnection(server.port, receive_buffer=65_536) as slow:
        slow.send(post("/models/embedder/tokenize", {"inputs": ["the " * 10_000] * 25}))
        slow.receive()
        server.signal()
        with contextlib.suppress(Closed):
            while True:
                slow.receive()
                time.sleep(0.1)
    code, printed = server.wait()
    assert (
        code == 1
        and "cut 1 connection whose" in printed
        and "some requests are lost" in printed
        and "Traceback" not in printed
    ), printed
    assert "are answered" not in printed


def ask_in_parallel(server, requests: list[bytes], number: int) -> None:
    """Send so many requests on eight connections; all must be answered 200."""
    statuses = set()

    def client() -> None:
        with RawConnection(server.port) as connection:
            for _ in range(number // (8 * len(requests))):
                statuses.update(connection.ask(content).status for content in requests)

    clients = [threading.Thread(target=client) for _ in range(8)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert statuses == {200}


@pytest.mark.long
def test_many_requests_leave_no_memory_behind(served_models):
    """60,000 requests to models of all kinds; between them, wrong ones and clients that leave."""
    server = start_server([*arguments(served_models), "--engine", "onnxruntime"])
    texts = [f"{'the ' * (n % 12)}cat" for n in range(24)]
    good = [post(EMBED, {"inputs": text}) for text in texts]
    good += [post("/models/tagger/tag", {"inputs": text}) for text in texts[:6]]
    good += [post("/models/index/search", {"queries": text}) for text in texts[:2]]
    good += [post("/models/reranker/rerank", {"query": "the", "texts": texts[:4]})]
    good += [post(EMBED, {"inputs": ["the"], "dimensions": 4}), head("GET", "/metrics")]
    good += [post("/models/masked/fill-mask", {"inputs": "the [MASK] sat"})]
    wrong = [post(EMBED, b"{"), post(EMBED, {"inputs": 1}), head("GET", "/nothing"), b"nonsense\r\n\r\n"]
    memory = []
    for _ in range(6):
        ask_in_parallel(server, good, 10_000)
        for content in wrong * 20:
            assert ask(server.port, content).status in (400, 404, 422)
            leaving = RawConnection(server.port)
            leaving.send(GOOD[: random.randrange(len(GOOD) + 1)])
            leaving.reset()
        memory.append(server.resident_bytes / 1e6)
    assert memory[-1] < 1.03 * memory[1], memory
    assert server.stop()[0] == 0
