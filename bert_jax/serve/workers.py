"""The processes of a server: one, or several that share a port and the cores of the machine."""

import contextlib
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line
from bert_jax.serve.metrics import Metrics, Shared
from bert_jax.serve.settings import STOPPING, ServeSettings
from bert_jax.serve.starting import StartingAnswers

STOPPED = "stopped: all requests that were accepted are answered"
BACKLOG = 2048  # connections that wait to be accepted
PAUSE = 1.0  # seconds before a worker that died is started again
FROM_TERMINAL = (signal.SIGINT, signal.SIGHUP)  # which reach all processes; the first one tells the others


def serve_in_process(settings: ServeSettings) -> None:
    # Before anything slow, so that a port in use is told at once.
    listener = bind(settings.host, settings.port)
    with StartingAnswers(listener) as answers:
        from bert_jax.serve.server import serve_models

        def announce(line: str) -> None:
            answers.stop()
            print_line(line)

        serve_models(settings, listener, Metrics(), announce)
    print_line(STOPPED)


def serve_by_workers(settings: ServeSettings, count: int) -> None:
    """Start workers, start again those that die, and stop all when a signal comes."""
    listener = bind(settings.host, settings.port)
    received: list[int] = []
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: received.append(number))
    with tempfile.NamedTemporaryFile(prefix="bert-jax-metrics-") as numbers:
        numbers.write(bytes(count * Metrics.BYTES))
        numbers.flush()
        workers: list[Worker] = []
        try:
            with StartingAnswers(listener) as answers:
                for n in range(count):  # in turn: the first compiles what the others read from the cache
                    workers.append(Worker(settings, listener, Shared(Path(numbers.name), count, n)))
                    announcement = workers[n].wait_until_ready(received)
                    answers.stop()
            if not received:
                print_line(f"{announcement}, by {count} workers")
            while not received:
                ended = wait([worker.process.sentinel for worker in workers], timeout=0.2)
                for n, worker in enumerate(workers):
                    if worker.process.sentinel in ended and not received:
                        time.sleep(PAUSE)
                        print_line(f"worker {n} ended by itself and is started again")
                        workers[n] = Worker(settings, listener, worker.shared)
                        workers[n].wait_until_ready(received)
        finally:
            listener.close()  # the last worker that closes it ends it
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.process.join()
    if any((worker.process.exitcode or 0) > 0 for worker in workers):
        raise BertJaxError("stopped; some requests are lost, as it says above")
    print_line(STOPPED)


class Worker:
    def __init__(self, settings: ServeSettings, listener: socket.socket, shared: Shared):
        context = multiprocessing.get_context("spawn")
        self.shared = shared
        self.ready, announces = context.Pipe(duplex=False)
        self.process = context.Process(target=run_worker, args=(settings, listener, shared, announces))
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, FROM_TERMINAL)  # also in the new process
        self.process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        announces.close()

    def wait_until_ready(self, received: list[int]) -> str:
        """Return what the process announces when it is ready; "" if it is to stop before."""
        while not received:
            if self.ready.poll(0.2):
                with contextlib.suppress(EOFError):
                    return self.ready.recv()
                self.process.join()
                raise BertJaxError(f"worker {self.shared.number} ended before it was ready, as it says above")
        return ""


def run_worker(
    settings: ServeSettings, listener: socket.socket, shared: Shared, announces: Connection
) -> None:
    for number in FROM_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=stop_with_parent, daemon=True).start()
    use_share_of_cores(shared)
    from bert_jax.serve.server import serve_models

    try:
        serve_models(settings, listener, Metrics(shared), announces.send)
    except BertJaxError as error:
        raise SystemExit(f"worker {shared.number}: {error}") from None


def stop_with_parent() -> None:
    """Stop this process as a signal does, as soon as the process that started it has ended."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def use_share_of_cores(shared: Shared) -> None:
    """Compute on this worker's cores alone, if there is one for each worker."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if own := cores[shared.number :: shared.processes]:
            os.sched_setaffinity(0, own)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this address, which no other process gets from now on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # Connections of a server that has just ended do not keep the port.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, UnicodeError, TypeError) as error:
        listener.close()
        raise BertJaxError(
            f"cannot listen on {host:.60} port {port}: {error}; choose others with --host and --port"
        ) from None
    return listener
