"""Tokenize chunks of text to files of token ids, in worker processes.

Consecutive documents form chunks of about the same size. Each chunk becomes one file, named by its number and the hash
of its text, so a run that resumes after it was killed finds the finished files and makes only the others. The files do
not depend on the timing of the workers, so their bytes are always the same.
"""

import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.grouping import group_by_size
from bert_jax.core.output import sync_to_disk
from bert_jax.core.progress import Progress
from bert_jax.data.corpus.corpus_directory import CORPUS_VERSION
from bert_jax.text.sentences import split_sentences
from bert_jax.text.text_source import Layout, TextSource
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.word_cache import IdSource, cached

CHUNK = 2 << 20  # characters
TOGETHER = 1 << 18  # characters tokenized in one call; the library needs hundreds of bytes for each of them


@dataclass(frozen=True)
class ChunkSettings:
    """Everything that a chunk's bytes depend on, except its text."""

    tokenizer: str
    fingerprint: str
    wide: bool  # ids in 4 bytes instead of 2
    layout: Layout
    language: str

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint32 if self.wide else np.uint16)


def make_chunks(source: TextSource, recipe: ChunkSettings, directory: Path, processes: int) -> Iterator[Path]:
    """Yield the files of all chunks in order. Files that an earlier run finished are not made again."""
    directory.mkdir(exist_ok=True)
    waiting: deque[Future] = deque()
    # Spawned, not forked: this process may have threads, and a fork would copy their locks while they are held. The
    # workers start when the first chunk has to be made.
    context = multiprocessing.get_context("spawn")
    with ignoring_the_terminal():
        pool = ProcessPoolExecutor(processes, context, start_worker, (recipe,))
    try:
        for number, documents in enumerate(group_by_size(read_with_progress(source), CHUNK, len)):
            path = chunk_path(directory, number, documents, recipe)
            if path.is_file():
                waiting.append(Future())
                waiting[-1].set_result(path)
            else:
                with ignoring_the_terminal(), without_script():
                    waiting.append(pool.submit(make_chunk_in_worker, documents, path))
            # Read enough ahead to keep all workers busy, and keep no more text in memory than that.
            while len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        message = "a worker process died, likely out of memory; repeat the command with --processes 1"
        raise BertJaxError(message) from error
    finally:
        pool.shutdown(cancel_futures=True)


def make_chunks_in_process(
    source: TextSource, recipe: ChunkSettings, directory: Path, tokenizer: IdSource
) -> Iterator[Path]:
    """Yield the files of all chunks in order, as `make_chunks` does, but make them in this process."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, documents in enumerate(group_by_size(source.documents(), CHUNK, len)):
        path = chunk_path(directory, number, documents, recipe)
        yield path if path.is_file() else make_chunk(documents, path, recipe, tokenizer)


@contextmanager
def ignoring_the_terminal() -> Iterator[None]:
    """Processes that are started inside ignore Ctrl-C and SIGHUP, which a terminal sends to all of its processes: the
    workers, and the one in which Python counts their semaphores. They end with this process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def without_script() -> Iterator[None]:
    """Processes that are started inside do not run the user's script first, which may call `prepare` unguarded."""
    main = sys.modules["__main__"]
    script = main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        if script is not None:
            main.__file__ = script


def read_with_progress(source: TextSource) -> Iterator[str]:
    """Yield the documents, and show how many are read, or how much if the size of the source is known."""
    total = source.total_bytes / 1e6
    with Progress("MB", total, "prepare") if total else Progress("documents", work="prepare") as progress:
        for number, document in enumerate(source.documents(), 1):
            yield document
            progress.reach(source.read_bytes / 1e6 if total else number)


def chunk_path(directory: Path, number: int, documents: list[str], recipe: ChunkSettings) -> Path:
    settings = (CORPUS_VERSION, recipe.fingerprint, recipe.layout, recipe.language)
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=8)
    for document in documents:
        digest.update(text_hash(document))
    return directory / f"{number:06d}-{digest.hexdigest()}.npz"


def text_hash(text: str, size: int = 16) -> bytes:
    # "replace", because JSON can spell a lone surrogate, which UTF-8 cannot encode.
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=size).digest()


# Globals of a worker process, set when it starts.
_tokenizer: IdSource
_recipe: ChunkSettings


def start_worker(recipe: ChunkSettings) -> None:
    global _tokenizer, _recipe
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the parallelism comes from the workers
    warnings.simplefilter("ignore")  # the main process has already printed them
    _tokenizer, _recipe = cached(open_tokenizer(recipe.tokenizer)), recipe
    parent = multiprocessing.parent_process()

    def follow():
        # Without this, a worker whose parent was killed would wait for work for ever.
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def make_chunk_in_worker(documents: list[str], path: Path) -> Path:
    return make_chunk(documents, path, _recipe, _tokenizer)


def make_chunk(documents: list[str], path: Path, recipe: ChunkSettings, tokenizer: IdSource) -> Path:
    split = [split_sentences(document, recipe.layout, recipe.language) for document in documents]
    ids: list[np.ndarray] = []
    lengths: list[int] = []
    for batch in group_by_size(chain.from_iterable(split), TOGETHER, len):
        batch_ids = tokenizer.ids(batch)
        sizes = list(map(len, batch_ids))
        lengths.extend(sizes)
        ids.append(np.fromiter(chain.from_iterable(batch_ids), recipe.dtype, sum(sizes)))
    lines = [line.strip() for document in documents for line in document.split("\n")]
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        np.savez(
            file,
            tokens=np.concatenate([np.empty(0, recipe.dtype), *ids]),
            sentence_tokens=np.array(lengths, np.uint32),
            document_sentences=np.array([len(document) for document in split], np.uint32),
            documents=np.frombuffer(b"".join(map(text_hash, documents)), np.uint64).reshape(-1, 2),
            lines=np.frombuffer(b"".join(text_hash(line, 8) for line in lines if line), np.uint64),
        )
    sync_to_disk(partial)
    os.replace(partial, path)
    return path
