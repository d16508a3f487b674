"""The processes of a server: one, or several that share a port and the cores of the machine."""

import contextlib
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line
from bert_jax.serve.metrics import Metrics, Shared
from bert_jax.serve.settings import ServerOptions

STOPPED = "stopped: all requests that were accepted are answered"
PAUSE = 1.0  # seconds before a worker that died is started again


def serve_alone(options: ServerOptions) -> None:
    from bert_jax.serve.server import serve_models

    # Before anything slow, so that a port in use is told at once.
    serve_models(options, bind(options.host, options.port), Metrics(), print_line)
    print_line(STOPPED)


def serve_by_workers(options: ServerOptions, count: int) -> None:
    """Start workers, start again those that die, and stop all when a signal comes."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise BertJaxError("--workers needs a system on which processes can share a port; leave it out")
    holder = bind(options.host, options.port, shared=True)  # does not listen, so it gets no connection
    options = replace(options, port=holder.getsockname()[1])
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with tempfile.NamedTemporaryFile(prefix="bert-jax-metrics-") as numbers:
        numbers.write(bytes(count * Metrics.BYTES))
        numbers.flush()
        workers: list[Worker] = []
        try:
            for n in range(count):  # in turn: the first compiles what the others read from the cache
                workers.append(Worker(options, Shared(Path(numbers.name), count, n)))
                announcement = workers[n].wait_until_ready(stopping)
            if not stopping.is_set():
                print_line(f"{announcement}, by {count} workers")
            while not stopping.wait(0.1):
                ended = wait([worker.process.sentinel for worker in workers], timeout=0.5)
                for n, worker in enumerate(workers):
                    if worker.process.sentinel in ended and not stopping.wait(PAUSE):
                        print_line(f"worker {n} ended by itself and is started again")
                        workers[n] = Worker(options, worker.shared)
                        workers[n].wait_until_ready(stopping)
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.process.join()
    if any((worker.process.exitcode or 0) > 0 for worker in workers):
        raise BertJaxError("stopped; some requests are lost, as it says above")
    print_line(STOPPED)


class Worker:
    def __init__(self, options: ServerOptions, shared: Shared):
        context = multiprocessing.get_context("spawn")
        self.shared = shared
        self.ready, announces = context.Pipe(duplex=False)
        self.process = context.Process(target=run_worker, args=(options, shared, announces))
        self.process.start()
        announces.close()

    def wait_until_ready(self, stopping: threading.Event) -> str:
        """Return what the process announces when it is ready; "" if it is to stop before."""
        while not stopping.is_set():
            if self.ready.poll(0.2):
                with contextlib.suppress(EOFError):
                    return self.ready.recv()
                self.process.join()
                raise BertJaxError(f"worker {self.shared.number} ended before it was ready, as it says above")
        return ""


def run_worker(options: ServerOptions, shared: Shared, announces: Connection) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes; the first one tells the others
    use_share_of_cores(shared)
    from bert_jax.serve.server import serve_models

    try:
        listener = bind(options.host, options.port, shared=True)
        serve_models(options, listener, Metrics(shared), announces.send)
    except BertJaxError as error:
        raise SystemExit(f"worker {shared.number}: {error}") from None


def use_share_of_cores(shared: Shared) -> None:
    """Compute on this worker's cores alone, if there is one for each worker."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if own := cores[shared.number :: shared.processes]:
            os.sched_setaffinity(0, own)


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """Return a socket of this address; `shared` with other processes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except (OSError, UnicodeError, TypeError) as error:
        listener.close()
        raise BertJaxError(
            f"cannot listen on {host:.60} port {port}: {error}; choose others with --host and --port"
        ) from None
    return listener
