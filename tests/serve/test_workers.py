"""A server of several processes: one port, which nobody else gets, and no process without its parent."""

import contextlib
import errno
import os
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.hostile.outcomes import outcome
from tests.serve.hostile_heads import EMBED, GOOD
from tests.serve.processes import RunningServer, start_server
from tests.serve.raw_client import RawConnection, ask, head, is_refused, post
from tests.support.cases import long_except
from tests.support.served_models import arguments

pytestmark = [pytest.mark.slow, pytest.mark.ci]


@pytest.fixture(scope="module")
def model(served_models):
    return [*arguments(served_models, "embedder"), "--engine", "onnxruntime"]


@pytest.fixture
def server(model):
    server = start_server([*model, "--workers", "2"])
    yield server
    server.process.kill()


def workers_of(server: RunningServer) -> list[int]:
    listed = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return [n for n in map(int, listed) if "spawn_main" in Path(f"/proc/{n}/cmdline").read_text()]


def is_alive(number: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_second_server_on_the_port_is_refused_in_one_line(model, server):
    port = ["--port", str(server.port), "--workers", "2"]
    refused = outcome(["serve", *model, *port], seconds=60)
    assert refused.code == 1 and f"cannot listen on 127.0.0.1 port {server.port}" in refused.stderr, refused
    assert len(refused.stderr.splitlines()) == 1
    assert ask(server.port, GOOD).status == 200


def test_a_server_that_is_starting_says_so(monkeypatch):
    """Also to a client that sends much, or nothing."""
    from bert_jax.serve.starting import StartingAnswers
    from bert_jax.serve.workers import bind

    monkeypatch.setattr("bert_jax.serve.starting.PATIENCE", 0.1)
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with StartingAnswers(listener):
            silent = RawConnection(port)
            for request in (head("GET", "/health"), GOOD, post(EMBED, {"inputs": ["cat"] * 50_000})):
                answer = ask(port, request)
                assert answer.status == 503 and b'"starting"' in answer.body
        late = RawConnection(port)
        late.send(GOOD)
        connections = [listener.accept()[0] for _ in range(1)]
        assert connections[0].recv(10) == GOOD[:10], "what comes later is left to the server"
    assert silent


def test_a_server_that_is_starting_and_has_no_free_file_does_not_take_a_core():
    from bert_jax.serve.starting import StartingAnswers
    from bert_jax.serve.workers import bind

    tried = []

    def accept():
        tried.append(None)
        raise OSError(errno.EMFILE, "too many open files")

    with bind("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        with StartingAnswers(SimpleNamespace(fileno=listener.fileno, accept=accept)):
            time.sleep(0.5)
        time.sleep(0.1)  # its thread ends
    assert 1 < len(tried) < 100


def test_a_server_that_compiles_has_its_port_already():
    """Two that start together: the second is refused at once, not when its programs are compiled."""
    from bert_jax.core.errors import BertJaxError
    from bert_jax.serve.workers import bind

    with bind("127.0.0.1", 0) as first, pytest.raises(BertJaxError, match="cannot listen on"):
        bind("127.0.0.1", first.getsockname()[1])


def test_workers_end_with_their_parent(server):
    workers = workers_of(server)
    assert len(workers) == 2 and ask(server.port, GOOD).status == 200
    server.process.kill()
    until(lambda: not any(map(is_alive, workers)))
    assert is_refused(server.port)


def test_a_worker_that_dies_is_started_again(server):
    first, second = workers_of(server)
    os.kill(first, signal.SIGKILL)
    server.wait_for(r"(started again)", 30)
    until(lambda: len(workers_of(server)) == 2 and first not in workers_of(server))
    os.kill(second, signal.SIGSTOP)  # so that only the new one can answer
    try:
        connections = [RawConnection(server.port) for _ in range(20)]
        for connection in connections:
            connection.send(head("GET", "/health"))
        until(lambda: any(connection.is_answering() for connection in connections))
    finally:
        os.kill(second, signal.SIGCONT)
    code, printed = server.stop()
    assert code == 0 and "are answered" in printed


@pytest.mark.parametrize("number", long_except([signal.SIGINT, signal.SIGHUP], [signal.SIGINT]))
def test_a_signal_to_all_processes_ends_them_in_order(server, number):
    """Ctrl-C reaches every process of the server, as does the end of a terminal."""
    workers, connection = workers_of(server), RawConnection(server.port)
    assert connection.ask(GOOD).status == 200
    for process in (*workers, server.process.pid):
        os.kill(process, number)
    code, printed = server.wait()
    assert code == 0 and printed.endswith("stopped: all requests that were accepted are answered\n"), printed
    assert "started again" not in printed and "Traceback" not in printed
    assert is_refused(server.port)
