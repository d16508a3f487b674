"""From text to a corpus: sentences, ids, no document twice, a part held out.

The documents are cut into chunks of a fixed size, in their order. Worker processes turn each chunk into one
file in `OUTPUT.partial/`, named by the chunk's number and the hash of its text; a run that was killed finds
the files of the chunks it had finished and makes the others. When all are there they are read in order and
become the corpus, which takes its name last. Nothing depends on which worker was when done, so the bytes are
always the same.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bert_jax.data.arrays import growing_array
from bert_jax.data.corpus.directory import ARRAYS, PARTS, VERSION
from bert_jax.data.corpus.duplicates import first_seen, lowest, repeated
from bert_jax.errors import BertJaxError
from bert_jax.files import file_hash, write_atomically
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.readers import Layout, Source
from bert_jax.text.sentences import sentences
from bert_jax.text.tokenizer import Tokenizer

CHUNK = 2 << 20  # characters
FEW = 4  # sentences of a document, of which pairs have little to take
TOGETHER = 1 << 18  # characters tokenized in one call; the library holds hundreds of bytes for each meanwhile


@dataclass(frozen=True)
class Recipe:
    """What a chunk's bytes depend on beside its text."""

    tokenizer: str
    fingerprint: str
    wide: bool  # ids in 4 bytes instead of 2
    layout: Layout
    language: str

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint32 if self.wide else np.uint16)


def prepare(
    inputs, tokenizer, output, *, layout: Layout = "blank", column="text", language="en", heldout=0.01,
    strict=False, processes=None,
) -> dict:  # fmt: skip
    """Writes a corpus directory and returns its manifest."""
    output = Path(output)
    if output.exists():
        raise BertJaxError(f"{output} exists already; delete it, or give --output another name")
    if not 0 <= heldout < 1:
        raise BertJaxError(f"--heldout is a share of the documents, 0 or more and below 1, not {heldout}")
    source = Source(inputs, layout, column, strict)
    opened = open_tokenizer(tokenizer)
    recipe = Recipe(str(tokenizer), opened.fingerprint, opened.size > 1 << 16, layout, language)
    work = output.with_name(output.name + ".partial")
    try:
        work.mkdir(parents=True, exist_ok=True)
        chunks = list(tokenized(source, recipe, work / "chunks", processes or cores()))
        if not chunks:
            raise BertJaxError(f"no text in {', '.join(map(str, inputs))}; every input is empty")
        made = work / "corpus"
        shutil.rmtree(made, ignore_errors=True)
        manifest = joined(chunks, made, recipe, heldout)
        opened.save(made / "tokenizer")
        manifest["tokenizer"] = {"fingerprint": opened.fingerprint, "size": opened.size}
        manifest["source"] = {
            "inputs": [str(given) for given in inputs],
            "files": len(source.files),
            "layout": layout,
            "column": column,
            "language": language,
            "empty_files": source.empty_files,
            "broken_lines": source.broken_lines,
            "cut_documents": source.cut_documents,
        }
        files = sorted(path for path in made.rglob("*") if path.is_file())
        manifest["files"] = {
            path.relative_to(made).as_posix(): {"bytes": path.stat().st_size, "blake2b": file_hash(path)}
            for path in files
        }
        write_atomically(made / "manifest.json", json.dumps(manifest, indent=1) + "\n")
        os.replace(made, output)
    except OSError as error:
        raise BertJaxError(
            f"cannot write {error.filename or work}: {error.strerror}; what is finished is kept in {work}, "
            "the same command goes on from there"
        ) from error
    shutil.rmtree(work)
    return manifest


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Chunks.


def tokenized(source: Source, recipe: Recipe, directory: Path, processes: int) -> Iterator[Path]:
    """The files of all chunks in order, those from before and those made now."""
    directory.mkdir(exist_ok=True)
    waiting: deque[Future] = deque()
    with Progress(source) as progress, Workers(processes, recipe) as workers:
        for number, documents in enumerate(chunked(source.documents())):
            path = directory / f"{number:06d}-{chunk_key(documents, recipe)}.npz"
            waiting.append(finished(path) if path.is_file() else workers.submit(documents, path))
            # Enough ahead for all workers, and no more text in memory than that.
            while len(waiting) > 2 * processes:
                yield waiting.popleft().result()
            progress.show()
        while waiting:
            yield waiting.popleft().result()


def chunked(documents: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document)
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def chunk_key(documents: list[str], recipe: Recipe) -> str:
    digest = hashlib.blake2b(
        repr((VERSION, recipe.fingerprint, recipe.layout, recipe.language)).encode(), digest_size=8
    )
    for document in documents:
        digest.update(text_hash(document))
    return digest.hexdigest()


def text_hash(text: str, size: int = 16) -> bytes:
    # A lone surrogate, which JSON can spell, has no UTF-8 form.
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=size).digest()


def finished(path: Path) -> Future:
    future: Future = Future()
    future.set_result(path)
    return future


def make_chunk(documents: list[str], path: Path, recipe: Recipe, tokenizer: Tokenizer) -> Path:
    split = [sentences(document, recipe.layout, recipe.language) for document in documents]
    texts = [sentence for document in split for sentence in document]
    ids: list[np.ndarray] = []
    lengths: list[int] = []
    for batch in batches(texts):
        found = tokenizer.ids(batch)
        lengths.extend(map(len, found))
        ids.append(np.fromiter(chain.from_iterable(found), recipe.dtype, sum(map(len, found))))
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
    os.replace(partial, path)
    return path


def batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= TOGETHER:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Workers:
    """Processes that make chunks; they start when the first chunk has to be made, and end when we do."""

    def __init__(self, processes: int, recipe: Recipe):
        self.processes, self.recipe = processes, recipe
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def submit(self, documents: list[str], path: Path) -> Future:
        if self.pool is None:
            # Not forked: the reader's process may have threads, whose locks a fork would copy as they stand.
            self.pool = ProcessPoolExecutor(
                self.processes, multiprocessing.get_context("spawn"), start_worker, (self.recipe,)
            )
        return self.pool.submit(work_on, documents, path)

    def __exit__(self, kind, error, _) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise BertJaxError(
                "a worker process died, most likely for want of memory; the same command goes on where "
                "this one stopped, --processes 1 needs the least"
            ) from error


# Of a worker process, from its start on.
_tokenizer: Tokenizer
_recipe: Recipe


def start_worker(recipe: Recipe) -> None:
    global _tokenizer, _recipe
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each worker is one thread of the whole
    _tokenizer, _recipe = open_tokenizer(recipe.tokenizer), recipe
    parent = multiprocessing.parent_process()

    def follow():
        # A worker whose parent was killed would otherwise wait for work for ever.
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def work_on(documents: list[str], path: Path) -> Path:
    return make_chunk(documents, path, _recipe, _tokenizer)


class Progress:
    """A bar on a terminal, otherwise a line now and then."""

    EVERY = 30  # seconds

    def __init__(self, source: Source):
        self.source, self.said, self.begun = source, time.monotonic(), time.monotonic()

    def __enter__(self) -> "Progress":
        self.bar = tqdm(
            total=self.source.total_bytes or None, unit="B", unit_scale=True, desc="prepare",
            disable=not sys.stderr.isatty(),
        )  # fmt: skip
        return self

    def show(self) -> None:
        done, total, now = self.source.read_bytes, self.source.total_bytes, time.monotonic()
        self.bar.update(done - self.bar.n)
        if self.bar.disable and now - self.said > self.EVERY and done:
            left = (now - self.begun) * (total - done) / done
            rate = done / (now - self.begun)
            print(
                f"prepare: {done:,} of {total:,} bytes, {rate / 1e6:.1f} MB/s, {left:.0f} s left",
                file=sys.stderr,
            )
            self.said = now

    def __exit__(self, *_) -> None:
        self.bar.close()


# The corpus.


def joined(chunks: list[Path], made: Path, recipe: Recipe, heldout: float) -> dict:
    """Chunks in their order as the arrays of a corpus; returns counts for the manifest."""
    kept = first_seen(chunks, "documents")
    dropped = int(len(kept) - kept.sum())
    _drop_wordless(chunks, kept)
    documents = int(kept.sum())
    if not documents:
        raise BertJaxError("no document has a single token; is this the right tokenizer for the text?")
    if documents == 1 and dropped:
        raise BertJaxError(f"all {dropped + 1} documents are the same text; give inputs that differ")
    held = np.zeros(len(kept), bool)
    if heldout:
        if documents < 4:
            raise BertJaxError(
                f"{documents} documents are too few to hold some out; mark where documents begin "
                "(--layout), or give --heldout 0"
            )
        # Two at least, so that a next-sentence pair can be drawn from another document.
        held = lowest(chunks, kept, max(2, round(heldout * documents)))
    counts = {}
    for part, chosen in zip(PARTS, (kept & ~held, held), strict=True):
        counts[part] = (
            _write_part(chunks, chosen, made / part, recipe) if chosen.any() else dict.fromkeys(ARRAYS, 0)
        )
    lines, repeats = repeated(chunks, "lines")
    return {
        "version": VERSION,
        "counts": counts | {"duplicate_documents": dropped, "lines": lines, "repeated_lines": repeats},
    }


def _drop_wordless(chunks: list[Path], kept: np.ndarray) -> None:
    """Documents without a token (nothing but control characters, say) are no documents."""
    first = 0
    for path in chunks:
        with np.load(path) as chunk:
            owner = np.repeat(np.arange(len(chunk["document_sentences"])), chunk["document_sentences"])
            tokens = np.bincount(owner, chunk["sentence_tokens"], len(chunk["document_sentences"]))
        kept[first : first + len(tokens)] &= tokens > 0
        first += len(tokens)


def _write_part(chunks: list[Path], chosen: np.ndarray, directory: Path, recipe: Recipe) -> dict[str, int]:
    documents_before = 0
    begin_token, begin_sentence = 0, 0
    with (
        growing_array(directory / "tokens.npy", recipe.dtype) as tokens,
        growing_array(directory / "sentences.npy", np.uint64) as sentence_starts,
        growing_array(directory / "documents.npy", np.uint64) as document_starts,
    ):
        for path in chunks:
            with np.load(path) as chunk:
                sizes = chunk["document_sentences"].astype(np.int64)
                lengths = chunk["sentence_tokens"].astype(np.int64)
                here = chosen[documents_before : documents_before + len(sizes)]
                documents_before += len(sizes)
                owner = np.repeat(np.arange(len(sizes)), sizes)
                wanted = here[owner]
                tokens.append(chunk["tokens"][np.repeat(wanted, lengths)])
            wanted &= lengths > 0  # a sentence of nothing but control characters has no token
            lengths, sizes = lengths[wanted], np.bincount(owner[wanted], minlength=len(sizes))[here]
            sentence_starts.append(begin_token + np.cumsum(lengths) - lengths)
            document_starts.append(begin_sentence + np.cumsum(sizes) - sizes)
            begin_token += int(lengths.sum())
            begin_sentence += int(sizes.sum())
        sentence_starts.append(np.array([begin_token]))
        document_starts.append(np.array([begin_sentence]))
    return {"tokens": begin_token, "sentences": begin_sentence, "documents": document_starts.rows - 1}


def summary(manifest: dict, output) -> str:
    """What a person should know of a corpus that was just made; odd things only where there are any."""
    counts, source = manifest["counts"], manifest["source"]
    lines = [
        f"{output}: {part} " + ", ".join(f"{counts[part][name]:,} {name}" for name in reversed(ARRAYS))
        for part in PARTS
    ]
    odd = {
        "duplicate documents dropped": counts["duplicate_documents"],
        f"of {counts['lines']:,} lines repeat an earlier one": counts["repeated_lines"],
        "lines of broken UTF-8, replaced by \ufffd": source["broken_lines"],
        "empty files": source["empty_files"],
        "documents over 16 MB cut; are there blank lines between documents?": source["cut_documents"],
    }
    lines += [f"  {count:,} {what}" for what, count in odd.items() if count]
    documents, sentences = (sum(counts[part][name] for part in PARTS) for name in ("documents", "sentences"))
    if source["layout"] == "blank" and documents > 1 and sentences < FEW * documents:
        lines.append(
            f"  a document has {sentences / documents:.1f} sentences: if each is a paragraph of plain text, "
            "--layout file makes one of each file"
        )
    return "\n".join(lines)
