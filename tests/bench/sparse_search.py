"""`sparse`: search an index of synthetic sparse vectors.

Tokens are as frequent as the weights of SPLADE make them: a passage has some 120 of 30,522, and the most frequent ones
are in a third of all passages. Queries have 30 tokens of the same distribution.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bert_jax.bench.timing import Machine, describe_load, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.computations import SparseVector
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import SPARSE_ROWS, IndexedModel, IndexManifest
from bert_jax.search.index_writer import open_writer
from bert_jax.search.passages import PassageCutter, WordCounter
from bert_jax.search.sparse import MAX_ACTIVE_DIMS, pack_rows, weight_query
from tests.bench.search import AT, INDEX, WORDS, made_documents, memory_bytes, run_in_process

VOCABULARY, DRAWN, OF_QUERY = 30_522, 130, 30
FLAT = 100  # ranks that are about equally frequent


@dataclass(frozen=True)
class SparseSize:
    vectors: int
    queries: int = 500


@cache
def cumulated() -> np.ndarray:
    shares = 1 / (np.arange(VOCABULARY) + FLAT)
    return np.cumsum(shares / shares.sum())


def draw_vector(rng: np.random.Generator, count: int) -> SparseVector:
    tokens = np.unique(np.searchsorted(cumulated(), rng.random(count)).clip(max=VOCABULARY - 1))
    return SparseVector(tokens.astype(np.int32), rng.gamma(2, 0.4, len(tokens)).astype(np.float32))


def encode(texts: list[str]) -> np.ndarray:
    numbers = (int(text.split(" ", 1)[0]) for text in texts)
    return pack_rows([draw_vector(np.random.default_rng((5, n)), DRAWN) for n in numbers], MAX_ACTIVE_DIMS)


def measure_sparse(output: str, size: SparseSize) -> tuple[dict[str, float], dict]:
    """Return the figures of an index, and the load."""
    folder, machine = Path(output), Machine()
    if (folder / INDEX).exists():
        raise BertJaxError(f"{folder} holds an index already; name a new --output")
    built, turn = timed(run_in_process, build_index, folder, size.vectors)
    return built | run_in_process(search_figures, folder, size.queries), machine.load_during([turn])


def build_index(folder: Path, count: int) -> dict[str, float]:
    model = IndexedModel("", "", "", "", False, "", "", 512, VOCABULARY, MAX_ACTIVE_DIMS)
    _, encoding = timed(lambda: [encode([str(n) for n in range(4096)])])
    with open_writer(folder / INDEX, IndexManifest(None, 4 * WORDS, 0, sparse_model=model)) as writer:
        cutter = PassageCutter(WordCounter(), 4 * WORDS, 0)
        _, turn = timed(writer.add_documents, made_documents(0, count), cutter, {SPARSE_ROWS: encode})
    return {
        "build_seconds": turn.seconds,
        "made_seconds": encoding.seconds * count / 4096,
        "build_own_bytes": memory_bytes()["own_bytes"],
    }


def search_figures(folder: Path, count: int) -> dict[str, float]:
    index, rng = Index.open(folder / INDEX), np.random.default_rng(6)
    segments = [(segment.sparse, segment.live) for segment in index.segments]
    queries = [draw_vector(rng, OF_QUERY) for _ in range(count)]

    def search(vector: SparseVector) -> None:
        index.rank_terms(weight_query(vector, [""] * len(vector.ids), segments), AT)

    for vector in queries:
        search(vector)  # its postings are in memory then
    seconds = [timed(search, vector)[1].seconds for vector in queries]
    files = {path: path.stat().st_size for path in (folder / INDEX).rglob("*") if path.is_file()}
    return {
        "p50_ms": 1e3 * float(np.percentile(seconds, 50)),
        "p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "postings_of_query": float(
            np.mean([sum(len(segments[0][0].find(token, None)[0]) for token in q.ids) for q in queries])
        ),
        "bytes": sum(files.values()),
        "sparse_bytes": sum(size for path, size in files.items() if path.name.startswith("sparse.")),
        **memory_bytes(),
    }


def describe_sparse(size: SparseSize, figures: dict[str, float], load: dict) -> str:
    f = figures
    return "\n".join(
        [
            f"{size.vectors:,} sparse vectors of some {DRAWN} tokens, {size.queries:,} queries of some {OF_QUERY}, the "
            f"{AT} best passages",
            f"p50 {f['p50_ms']:.2f} ms, p99 {f['p99_ms']:.2f} ms; a query reads {f['postings_of_query']:,.0f} postings",
            f"built in {f['build_seconds']:.0f} s (of these, {f['made_seconds']:.0f} s to make the vectors), with "
            f"{f['build_own_bytes'] / 1e6:,.0f} MB of its own memory",
            f"{f['bytes'] / 1e6:,.0f} MB of files, {f['sparse_bytes'] / 1e6:,.0f} of them sparse; searched with "
            f"{f['own_bytes'] / 1e6:,.0f} MB and {f['mapped_bytes'] / 1e6:,.0f} MB of pages of files",
            describe_load(load),
        ]
    )
