"""`search`: search an index of synthetic vectors exactly and with each kind of candidates.

The vectors are as close to each other as those of sentences: among 11,819 passages of Wikipedia embedded by
all-MiniLM-L6-v2, the nearest passage has a median cosine of 0.67, the tenth 0.52, the hundredth 0.36 and the thousandth
0.16. Queries are not in the index. Each kind is searched in its own process, with its files in the page cache.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np

from bert_jax.bench.timing import Machine, describe_load, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.data.npy_writer import npy_writer
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import DENSE_ROWS, IndexedModel, IndexManifest
from bert_jax.search.index_writer import open_writer
from bert_jax.search.nearest import find_nearest
from bert_jax.search.passages import PassageCutter, WordCounter

# Shares of a vector's squared length that it has in common with the vectors of its groups of 1,000, 100 and 10, and
# (WITH_ALL) with all vectors; the rest is its own.
SHARED = ((1000, 0.125), (100, 0.2), (10, 0.19))
WITH_ALL, GROUP = 0.035, 1000
EXACT, INDEX = "float32", "index"
CANDIDATES = {"quantization": "binary", "approximate": "hnsw"}
KINDS = (EXACT, *CANDIDATES.values())
# Results of a query, queries of a batch, words of a document, documents added while queries run.
AT, BATCH, WORDS, ADDED = 10, 64, 40, 1000


@dataclass(frozen=True)
class Size:
    vectors: int
    dimensions: int = 384
    queries: int = 500


def vector_groups(size: Size) -> Iterator[np.ndarray]:
    """Yield groups of vectors followed by queries [GROUP + Q, D]; the queries are similar to the group's vectors."""
    extra = -(-size.queries * GROUP // size.vectors)
    count, width = GROUP + extra, size.dimensions
    common = np.random.default_rng(0).normal(size=width) * WITH_ALL**0.5
    for number in range(-(-size.vectors // GROUP)):
        rng = np.random.default_rng((1, number))
        vectors = (
            rng.normal(size=(count, width)) * (1 - WITH_ALL - sum(part for _, part in SHARED)) ** 0.5 + common
        )
        members = np.append(np.arange(GROUP), rng.integers(GROUP, size=extra))
        for together, part in SHARED:
            vectors += rng.normal(size=(GROUP // together, width))[members // together] * part**0.5
        yield (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def write_vectors(folder: Path, size: Size) -> None:
    """Write vectors.npy and queries.npy, in an order that does not depend on which vectors are close."""
    order = np.random.default_rng(2).permutation(-(-size.vectors // GROUP) * GROUP)
    queries = []
    scratch = np.lib.format.open_memmap(
        folder / "vectors.npy", "w+", np.float32, (len(order), size.dimensions)
    )
    for number, group in enumerate(vector_groups(size)):
        scratch[order[number * GROUP : (number + 1) * GROUP]] = group[:GROUP]
        queries.append(group[GROUP:])
    scratch.flush()
    chosen = np.random.default_rng(3).permutation(np.concatenate(queries))[: size.queries]
    with npy_writer(folder / "queries.npy", np.float32) as file:
        file.append(chosen)


def made_documents(first: int, count: int) -> Iterator[Document]:
    """Make documents whose words are distributed as in a language: their frequencies follow Zipf's law."""
    for start in range(first, first + count, GROUP):
        words = np.minimum(np.random.default_rng((4, start)).zipf(1.3, (GROUP, WORDS)), 1 << 20)
        for number, row in zip(range(start, min(start + GROUP, first + count)), words, strict=False):
            yield Document(f"{number:09}", "", f"{number} " + " ".join(f"w{word}" for word in row))


def measure_search(output: str, size: Size) -> tuple[dict[str, dict], dict, dict]:
    """Return the figures of each kind of index, those of a search while documents were added, and the load."""
    folder, machine = Path(output), Machine()
    if (folder / INDEX).exists():
        raise BertJaxError(f"{folder} holds an index already; name a new --output")
    folder.mkdir(parents=True, exist_ok=True)
    built, figures = BuiltIndex(folder, size), {}
    turns = [timed(built.add, 0, size.vectors - ADDED)[1]]
    for kind in KINDS:  # exact search comes first, because each other kind rewrites the index
        if kind != EXACT:
            turns.append(timed(built.merge, kind)[1])
        figures[kind] = {"build_seconds": turns[-1].seconds} | run_in_process(search_figures, folder)
    watch = folder / "adding"
    watch.touch()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        watching = pool.submit(search_meanwhile, folder, watch)
        while watch.stat().st_size == 0 and not watching.done():  # until it has answered a query
            time.sleep(0.05)
        turns.append(timed(built.add, size.vectors - ADDED, ADDED)[1])
        watch.unlink()
        adding = {"seconds": turns[-1].seconds} | watching.result()
    return figures, adding, machine.load_during(turns)


class BuiltIndex:
    """The index that is built and changed."""

    def __init__(self, folder: Path, size: Size):
        self.path, self.model = (
            folder / INDEX,
            IndexedModel("", "", "", "", True, "", "", 512, size.dimensions),
        )
        write_vectors(folder, size)
        self.vectors = np.load(folder / "vectors.npy", mmap_mode="r")

    def add(self, first: int, count: int) -> None:
        with open_writer(self.path, IndexManifest(self.model, 4 * WORDS, 0)) as writer:
            writer.add_documents(
                made_documents(first, count),
                PassageCutter(WordCounter(), 4 * WORDS, 0),
                {DENSE_ROWS: self.encode},
            )

    def encode(self, texts: list[str]) -> np.ndarray:
        return self.vectors[[int(text.split(" ", 1)[0]) for text in texts]]

    def merge(self, kind: str) -> None:
        settings = {name: kind if kind == value else None for name, value in CANDIDATES.items()}
        with open_writer(self.path) as writer:
            writer.compact(replace(writer.manifest, **settings))


def run_in_process(function: Callable, *arguments):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def search_figures(folder: Path) -> dict[str, float]:
    index, queries = Index.open(folder / INDEX), np.load(folder / "queries.npy")
    index.rank_nearest(queries[:BATCH], AT)
    seconds = [timed(index.rank_nearest, query[None], AT)[1].seconds for query in queries]
    batches = [queries[n : n + BATCH] for n in range(0, len(queries), BATCH)]
    _, together = timed(lambda: [index.rank_nearest(batch, AT) for batch in batches])
    memory = memory_bytes()  # before all vectors are read to measure recall
    (segment, *_), hits = index.segments, 0
    for query in queries:
        ((exact, _),) = find_nearest(segment, query[None], AT, exact=True)
        ((nearest_rows, _),) = find_nearest(segment, query[None], AT)
        hits += len(np.intersect1d(exact, nearest_rows))
    return {
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "queries_per_second": len(queries) / together.seconds,
        "recall": hits / (AT * len(queries)),
        "bytes": sum(path.stat().st_size for path in (folder / INDEX).rglob("*") if path.is_file()),
        **memory,
    }


def search_meanwhile(folder: Path, watch: Path) -> dict[str, float]:
    """Run one query after another while the file `watch` exists, in the index as it was opened; then refresh it."""
    index, queries, seconds = Index.open(folder / INDEX), np.load(folder / "queries.npy"), list[float]()
    before = len(index)
    for query in cycle(queries):
        seconds.append(timed(index.rank_nearest, query[None], AT)[1].seconds)
        if len(seconds) == 1:
            watch.write_text("searching")
        if not watch.exists():
            break
    index.refresh()
    return {
        "queries": len(seconds),
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "found": len(index) - before,
    }


def memory_bytes() -> dict[str, int]:
    """Return the process's own memory, and its pages of mapped files, which the system can reclaim."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, mapped = (int(status[name].split()[0]) << 10 for name in ("RssAnon", "RssFile"))
    return {"own_bytes": own, "mapped_bytes": mapped}


def describe_search(size: Size, figures: dict[str, dict], adding: dict, load: dict) -> str:
    lines = [
        f"{size.vectors:,} vectors of {size.dimensions}, {size.queries:,} queries, the {AT} nearest passages",
        "",
        "| candidates by | recall | p50, p99 of a query | queries/s | build | files | memory, pages of files |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, row in figures.items():
        files, own, mapped = (row[name] / 1e6 for name in ("bytes", "own_bytes", "mapped_bytes"))
        lines.append(
            f"| {kind} | {row['recall']:.3f} | {row['p50_ms']:.2f}, {row['p99_ms']:.2f} ms | "
            f"{row['queries_per_second']:,.0f} | {row['build_seconds']:.0f} s | {files:,.0f} MB | {own:,.0f}, "
            f"{mapped:,.0f} MB |"
        )
    lines += [
        "",
        f"while {ADDED:,} documents were added in {adding['seconds']:.1f} s: {adding['queries']:,} queries, "
        f"p50 {adding['p50_ms']:.2f} ms, p99 {adding['p99_ms']:.2f} ms",
        describe_load(load),
    ]
    return "\n".join(lines)
