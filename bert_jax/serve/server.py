"""The server: it opens the models, compiles their programs, and answers until it is told to stop."""

import asyncio
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from bert_jax.core.errors import BertJaxError
from bert_jax.core.memory import return_freed_memory
from bert_jax.core.progress import track
from bert_jax.core.terminal import pluralize
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.inference.batching import BatchShapes
from bert_jax.inference.engine import Engine, shapes_for
from bert_jax.inference.load import load
from bert_jax.inference.runner import TextPipeline, batch_key
from bert_jax.inference.warm_up import Program, compute_once
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import INDEX_FILE, MODEL_SETTINGS
from bert_jax.serve.application import Application
from bert_jax.serve.connection import Connection
from bert_jax.serve.metrics import Metrics
from bert_jax.serve.models import SERVED, serve_model
from bert_jax.serve.served_model import ServedModel
from bert_jax.serve.settings import BATCHES_AT_ONCE, BATCHES_QUEUED, STOPPING, ServeSettings

if TYPE_CHECKING:
    from bert_jax.inference.adapters import AdapterModels

KEEP_ALIVE = 75  # seconds that an idle connection stays open
LOOK_AFTER = 0.5  # seconds before the server looks again for connections that are stuck
MOST_FILES = 65_536
POLLS = 5  # of the event loop before it ends: they accept connections that were made, and read what was sent


def named_directories(given: Sequence[str]) -> dict[str, Path]:
    """Return the directories by the names under which they are served.

    >>> named_directories(["runs/minilm/", "tags=runs/ner"])
    {'minilm': PosixPath('runs/minilm'), 'tags': PosixPath('runs/ner')}
    """
    named: dict[str, Path] = {}
    for word in given:
        name, equals, directory = word.partition("=")
        path = Path(directory if equals and "/" not in name else word)
        name = name if equals and "/" not in name else path.resolve().name
        if not name:
            raise BertJaxError(f'"{word}" names no model; give NAME={path}')
        if name in named:
            raise BertJaxError(f'two models are called "{name}"; name one of them: NAME={path}')
        named[name] = path
    return named


def open_models(
    named: Mapping[str, Path], adapters: "AdapterModels | None" = None, **computed: Any
) -> dict[str, ServedModel]:
    """Open all directories; an index shares the embedder that it was built with, if that is served, too.

    The first model is the one with the `adapters`, which are served, too.
    """
    indexes = {name for name, path in named.items() if (path / INDEX_FILE).is_file()}
    opened: dict[str, Any] = {}
    if adapters:
        opened = {name or next(iter(named)): adapters[name] for name in adapters}
        if twice := sorted(set(named) & set(adapters)):
            raise BertJaxError(f'an adapter and a model are called "{twice[0]}"; name one of them: NAME=DIR')
    opened |= {
        name: load(path, **computed) for name, path in named.items() if name not in {*indexes, *opened}
    }
    embedders = {
        model_fingerprint(model.directory): model
        for model in (opened.values() if indexes else ())
        if model.layout.text_settings
    }
    for name in indexes:
        index = Index.open(named[name], **computed)
        for rows, facts in index.manifest.models.items():
            setattr(index, MODEL_SETTINGS[rows], embedders.get(facts.fingerprint))
            index.encoder_of(rows)  # it is opened when it is first asked for, and refused here
        opened[name] = index
    if adapters and SERVED.get(type(adapters[""]).__name__) is None:  # a plain encoder, which answers nothing
        del opened[next(iter(named))]
    in_order = [name for name in dict.fromkeys([*named, *opened]) if name in opened]
    return {name: serve_model(name, opened[name]) for name in in_order}


def serve_models(
    settings: ServeSettings, listener: socket.socket, metrics: Metrics, announce: Callable[[str], object]
) -> None:
    """Serve models on a socket until a signal comes; `announce` is called when all is ready."""
    named = named_directories(settings.directories)
    computed = {name: getattr(settings, name) for name in ("engine", "dtype", "batch_invariant")}
    adapters, folder = None, None
    if settings.adapters or settings.adapter_folder:
        from bert_jax.serve.adapters import AdapterFolder, open_adapters  # they need JAX

        first = next(iter(named.values()))
        adapters = open_adapters(first, named_directories(settings.adapters), **computed)
    models = open_models(named, adapters, **computed)
    if adapters and settings.adapter_folder:
        folder = AdapterFolder(Path(settings.adapter_folder), adapters)
        models = folder.update(models)
    shapes = next(
        (model.encoder.engine.shapes for model in models.values() if model.encoder), BatchShapes(1024)
    )
    encoders = [model.encoder for model in models.values() if model.encoder]
    engines = [encoder.engine.bank or encoder.engine for encoder in encoders]
    engines = list({id(engine): engine for engine in engines}.values())
    for engine in engines:
        engine.shapes = serving_shapes(engine.shapes)
    settings = replace(
        settings,
        batch_tokens=settings.batch_tokens or BATCHES_AT_ONCE * shapes.tokens,
        queued_tokens=settings.queued_tokens or BATCHES_QUEUED * shapes.tokens,
    )
    application = Application(models, settings, metrics, folder)
    with compiled_models(models.values(), engines) if settings.warms_up else nullcontext():
        run_server(application, listener, announce)


def serving_shapes(shapes: BatchShapes) -> BatchShapes:
    """Return every other length and every other number of rows, because all programs are compiled and in memory; with
    them, the number of batches matters little. Batches of fixed rows have one program for each length already.

    >>> serving_shapes(BatchShapes(1024, (8, 12, 16, 20, 24))).lengths
    (8, 16, 24)
    """
    if shapes.fixed:
        return shapes
    overhead = shapes.overhead or shapes.tokens // 16
    return replace(shapes, lengths=shapes.lengths[::-1][::2][::-1], row_step=2, overhead=overhead)


@contextmanager
def compiled_models(models: Iterable[ServedModel], engines: Sequence[Engine]) -> Iterator[None]:
    """Compile a program of each length, which suffices for all requests. Those for batches of more or fewer rows follow
    in a thread, while the server answers."""
    # Pipelines of several models may need the same programs.
    needed = {batch_key(pipeline): (model, pipeline) for model in models for pipeline in model.pipelines()}
    shapes = [engine.shapes for engine in engines]
    rest = [
        (pipeline.model, program) for _, pipeline in needed.values() for program in list_programs(pipeline)
    ]
    for engine in engines:
        if engine.shapes.lengths and not engine.shapes.fixed:
            engine.shapes = engine.shapes.with_one_count()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for model, pipeline in needed.values():
            programs = list_programs(pipeline)
            done = threads.map(partial(compute_once, pipeline.model), programs)
            for program in track(
                programs, "programs", f"compiling {model.name} (--no-warm-up: at the first requests)"
            ):
                next(done)
                rest.remove((pipeline.model, program))
    return_freed_memory()
    stopped = threading.Event()

    def compile_rest() -> None:
        for model, program in rest:
            if stopped.is_set():
                return
            compute_once(model, program)
        for engine, whole in zip(engines, shapes, strict=True):
            engine.shapes = whole
        return_freed_memory()

    thread = threading.Thread(target=compile_rest)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def list_programs(pipeline: TextPipeline) -> list[Program]:
    """Return the programs of all shapes of batches; of an engine that compiles nothing, one."""
    longest, shapes = pipeline.truncated.max_length, shapes_for(pipeline.model.engine, pipeline.computation)
    if not shapes.lengths:
        return [Program(pipeline.computation, min(longest, 16), 1, pipeline.extra_shapes[0])]
    most = pipeline.model.config.max_position_embeddings
    lengths = shapes.row_lengths(range(1, longest + 1), most)
    return [
        Program(pipeline.computation, length, rows, extra_inputs)
        for length in lengths
        for rows in shapes.row_counts(length)
        for extra_inputs in pipeline.extra_shapes
    ]


class Server(uvicorn.Server):
    """A server that returns when it is told to stop; uvicorn's own raises the signal again.

    Told twice, it does not wait for the requests that it has accepted.
    """

    def __init__(self, config: uvicorn.Config, announce: Callable[[], object]):
        super().__init__(config)
        self.announce = announce
        self.unanswered = 0  # connections that are cut when it stops

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `run_server` does so, before there is an event loop that a signal could interrupt

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit, self.force_exit = True, self.should_exit

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.watch = asyncio.create_task(self.close_stuck_connections())
        self.announce()

    async def close_stuck_connections(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AFTER)
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                connection.close_if_stuck()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for _ in range(POLLS):
            await asyncio.sleep(0)
        patience = self.config.timeout_graceful_shutdown
        assert patience
        out_of_time = asyncio.get_running_loop().call_later(patience, self.count_unanswered)
        await super().shutdown(sockets)
        out_of_time.cancel()
        if self.force_exit:
            await self.drop_requests()
            await self.lifespan.shutdown()
        self.watch.cancel()

    def count_unanswered(self) -> None:
        self.unanswered = len(self.server_state.connections)

    async def drop_requests(self) -> None:
        """Close all connections; their requests end as those of clients that have left."""
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.transport.abort()
        while self.server_state.tasks:
            await asyncio.sleep(LOOK_AFTER / 10)


def allow_many_connections() -> None:
    """Raise the number of files that the process may open, of which each connection is one, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, MOST_FILES)), hard))


def run_server(application: Application, listener: socket.socket, announce: Callable[[str], object]) -> None:
    host, port = listener.getsockname()[:2]
    names = ", ".join(f"{name} ({model.kind})" for name, model in application.models.items())
    seconds = application.settings.timeout
    config = uvicorn.Config(
        application, loop="uvloop", http=type("Connection", (Connection,), {"patience": seconds}), ws="none",
        lifespan="on", access_log=False, log_level=logging.ERROR, timeout_keep_alive=KEEP_ALIVE, server_header=False,
        # A request may take so long to arrive, and then as long to be computed.
        timeout_graceful_shutdown=int(2 * seconds) + 1,
    )  # fmt: skip
    allow_many_connections()
    server = Server(config, lambda: announce(f"serving {names} at http://{host}:{port}"))
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, server.handle_exit)
    server.run([listener])
    if server.force_exit:
        raise BertJaxError("stopped by a second signal; requests that were not answered yet are lost")
    if server.unanswered:
        raise BertJaxError(
            f"stopped, and cut {pluralize(server.unanswered, 'connection')} whose answers took more than "
            f"{config.timeout_graceful_shutdown} seconds; a longer --timeout waits longer"
        )
