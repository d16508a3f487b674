"""`bert-jax bench search`: search an index of synthetic vectors exactly and with each kind of candidates.

The vectors are as close to each other as those of sentences: among 11,819 passages of Wikipedia embedded by
all-MiniLM-L6-v2, the nearest passage has a median cosine of 0.67, the tenth 0.52, the hundredth 0.36 and the thousandth
0.16. Queries are not in the index. Each kind is searched in its own process, with its files in the page cache.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np

from bert_jax.bench.turns import Machine, Turn, describe, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.data.arrays import growing_array
from bert_jax.search import nearest
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import Manifest, ModelFacts
from bert_jax.search.index_writer import writing
from bert_jax.search.nearest import nearest_in
from bert_jax.search.passages import Cutter, Words

# Shares of a vector's squared length that it has in common with the vectors of its groups of 1,000, 100 and 10, and
# (WITH_ALL) with all vectors; the rest is its own.
SHARED = ((1000, 0.125), (100, 0.2), (10, 0.19))
WITH_ALL, GROUP = 0.035, 1000
EXACT, INDEX = "float32", "index"
KINDS = (EXACT, "int8", "binary", "hnsw", "ivf")
# Results of a query, queries of a batch, words of a document, documents added while queries run.
AT, BATCH, WORDS, ADDED = 10, 64, 40, 1000


@dataclass(frozen=True)
class Size:
    vectors: int
    dimensions: int
    queries: int


def groups(size: Size) -> Iterator[np.ndarray]:
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
    for number, group in enumerate(groups(size)):
        scratch[order[number * GROUP : (number + 1) * GROUP]] = group[:GROUP]
        queries.append(group[GROUP:])
    scratch.flush()
    chosen = np.random.default_rng(3).permutation(np.concatenate(queries))[: size.queries]
    with growing_array(folder / "queries.npy", np.float32) as file:
        file.append(chosen)


def documents(first: int, count: int) -> Iterator[Document]:
    """Make documents whose words are distributed as in a language: their frequencies follow Zipf's law."""
    for start in range(first, first + count, GROUP):
        words = np.minimum(np.random.default_rng((4, start)).zipf(1.3, (GROUP, WORDS)), 1 << 20)
        for number, row in zip(range(start, min(start + GROUP, first + count)), words, strict=False):
            yield Document(f"{number:09}", "", f"{number} " + " ".join(f"w{word}" for word in row))


def measure(output: str, size: Size, kinds: Sequence[str], as_json: bool = False) -> str:
    folder, machine = Path(output), Machine()
    if (folder / INDEX).exists():
        raise BertJaxError(f"{folder} holds an index already; name a new --output")
    folder.mkdir(parents=True, exist_ok=True)
    bench, rows = Bench(folder, size), {}
    turns = [bench.timed(bench.add, 0, size.vectors - ADDED)]
    # Exact search comes first, because each other kind rewrites the index.
    for kind in sorted(kinds, key=lambda kind: kind != EXACT):
        if kind != EXACT:
            turns.append(bench.timed(bench.merge, kind))
        rows[kind] = {"build_seconds": turns[-1].seconds} | in_new_process(searched, folder)
    watch = folder / "adding"
    watch.touch()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        watching = pool.submit(searched_while, folder, watch)
        while watch.stat().st_size == 0 and not watching.done():  # until it has answered a query
            time.sleep(0.05)
        turns.append(bench.timed(bench.add, size.vectors - ADDED, ADDED))
        watch.unlink()
        adding = {"documents": ADDED, "seconds": turns[-1].seconds} | watching.result()
    results = {"size": asdict(size), "of": rows, "adding": adding, "machine": machine.during(turns)}
    return to_json(results) if as_json else in_words(results)


class Bench:
    """The index that is built and changed."""

    def __init__(self, folder: Path, size: Size):
        self.path, self.model = folder / INDEX, ModelFacts("", "", "", "", True, "", "", 512, size.dimensions)
        write_vectors(folder, size)
        self.vectors = np.load(folder / "vectors.npy", mmap_mode="r")

    def timed(self, change: Callable, *arguments) -> Turn:
        return timed(change, *arguments)[1]

    def add(self, first: int, count: int) -> None:
        with writing(self.path, Manifest(self.model, 4 * WORDS, 0)) as writer:
            writer.add(documents(first, count), Cutter(Words(), 4 * WORDS, 0), self.encode)

    def encode(self, texts: list[str]) -> np.ndarray:
        return self.vectors[[int(text.split(" ", 1)[0]) for text in texts]]

    def merge(self, kind: str) -> None:
        small, approximate = (kind if kind in some else None for some in (nearest.SMALL, ("hnsw", "ivf")))
        with writing(self.path) as writer:
            writer.compact(replace(writer.manifest, quantization=small, approximate=approximate))


def in_new_process(function: Callable, *arguments):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def searched(folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    index, queries = Index.open(folder / INDEX), np.load(folder / "queries.npy")
    opened = time.perf_counter() - start
    index.by_vectors(queries[:BATCH], AT)
    seconds = [seconds_of(lambda query: index.by_vectors(query[None], AT), query) for query in queries]
    whole = seconds_of(
        lambda: [index.by_vectors(queries[n : n + BATCH], AT) for n in range(0, len(queries), BATCH)]
    )
    words = [
        seconds_of(lambda n: index.search(f"w{n} w{7 * n} w{n * n}", AT, ["keywords"]), n)
        for n in range(2, 52)
    ]
    memory = resident()  # before all vectors are read to measure recall
    (segment, *_), hits = index.segments, 0
    for query in queries:
        ((exact, _),) = nearest_in(segment, query[None], AT, exact=True)
        ((found_rows, _),) = nearest_in(segment, query[None], AT)
        hits += len(np.intersect1d(exact, found_rows))
    return {
        "open_seconds": opened,
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "queries_per_second": len(queries) / whole,
        "keywords_p50_ms": 1e3 * float(np.percentile(words, 50)),
        "recall": hits / (AT * len(queries)),
        "bytes": sum(path.stat().st_size for path in (folder / INDEX).rglob("*") if path.is_file()),
        **memory,
    }


def searched_while(folder: Path, watch: Path) -> dict[str, float]:
    """Run one query after another while the file `watch` exists, in the index as it was opened; then refresh it."""
    index, queries, seconds = Index.open(folder / INDEX), np.load(folder / "queries.npy"), list[float]()
    before = len(index)
    for query in cycle(queries):
        seconds.append(seconds_of(lambda query: index.by_vectors(query[None], AT), query))
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


def seconds_of(function: Callable, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def resident() -> dict[str, int]:
    """Return the process's own memory, and its pages of mapped files, which the system can reclaim."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, mapped = (int(status[name].split()[0]) << 10 for name in ("RssAnon", "RssFile"))
    return {"own_bytes": own, "mapped_bytes": mapped}


def in_words(results: dict) -> str:
    size, adding = results["size"], results["adding"]
    lines = [
        f"{size['vectors']:,} vectors of {size['dimensions']}, {size['queries']:,} queries, the {AT} nearest passages",
        f"{'':<8}  {'recall':>6}  {'p50 ms':>8}  {'p99 ms':>8}  {'queries/s':>9}  {'build s':>8}  {'open s':>6}  "
        f"{'MB':>7}  {'own MB':>7}  {'mapped MB':>9}",
    ]
    for kind, row in results["of"].items():
        lines.append(
            f"{kind:<8}  {row['recall']:>6.3f}  {row['p50_ms']:>8.2f}  {row['p99_ms']:>8.2f}  "
            f"{row['queries_per_second']:>9,.0f}  {row['build_seconds']:>8.1f}  {row['open_seconds']:>6.2f}  "
            f"{row['bytes'] / 1e6:>7,.0f}  {row['own_bytes'] / 1e6:>7,.0f}  {row['mapped_bytes'] / 1e6:>9,.0f}"
        )
    lines.append(
        f"while {adding['documents']:,} documents were added in {adding['seconds']:.1f} s: "
        f"{adding['queries']:,} queries, p50 {adding['p50_ms']:.2f} ms, p99 {adding['p99_ms']:.2f} ms"
    )
    return "\n".join([*lines, describe(results["machine"])])
