"""`late-interaction`: rerank by the token vectors of an index, and search by them alone.

The vectors are about as close as those of all-MiniLM-L6-v2, projected to 128 dimensions by a random rotation: in 2,600
passages of SQuAD and Wikipedia two tokens of a passage have a mean cosine of 0.30, and a token's nearest one in another
passage 0.27; here it is 0.30 and 0.30. Passages come in groups of one subject, as paragraphs do, and half of the words
of a query are of one passage. For a recall@10 of 0.95, encodings have to give 129 candidates of 2,600 such passages to
queries of 14 tokens, and 106 to 100 questions of SQuAD, which have as many.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bert_jax.bench.timing import Machine, describe_load, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.search import fixed_encodings
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import TOKEN_ROWS, IndexedModel, IndexManifest
from bert_jax.search.index_writer import open_writer
from bert_jax.search.late_interaction import TokenQuery, to_whole_numbers
from bert_jax.search.nearest import find_by_tokens
from bert_jax.search.passages import PassageCutter, WordCounter
from bert_jax.search.ragged_rows import stack_ragged
from bert_jax.search.row_files import TOKEN_STARTS
from tests.bench.search import AT, INDEX, memory_bytes, run_in_process

DIMENSIONS, SHORTEST, LONGEST = 128, 100, 200  # of a passage, in tokens
OF_QUERY, OF_QUESTION = 32, 14  # tokens of a query, and of a short one
RERANKED = 100  # passages
WORDS, FLAT = 30_000, 30  # different ones, and ranks that are about equally frequent
# Groups of so many passages have a subject: the share of a passage's squared length that is of it, and the share of
# tokens whose words are among the OF_SUBJECT that it has of its own.
SUBJECTS = ((10, 0.1, 0.1), (100, 0.2, 0.1), (1000, 0.3, 0.2))
OF_SUBJECT = 200
# Shares of a token vector's squared length: of its word, and of its passage; the rest is its own.
OF_WORD, OF_PASSAGE = 0.4, 0.3
EXACT_QUERIES = 50  # whose recall is measured


@dataclass(frozen=True)
class TokenSize:
    passages: int
    queries: int = 200


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@cache
def word_vectors() -> np.ndarray:
    return unit(np.random.default_rng(0).normal(size=(WORDS, DIMENSIONS)))


@cache
def cumulated() -> np.ndarray:
    shares = 1 / (np.arange(WORDS) + FLAT)
    return np.cumsum(shares / shares.sum())


def draw_words(number: int, rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw words of the passage `number`: of the language, and of its subject."""
    words = np.searchsorted(cumulated(), rng.random(count)).clip(max=WORDS - 1)
    for together, _, share in SUBJECTS:
        own = np.random.default_rng((1, together, number // together)).integers(WORDS, size=OF_SUBJECT)
        is_own = rng.random(count) < share
        words[is_own] = own[(OF_SUBJECT * rng.random(is_own.sum()) ** 2).astype(int)]
    return words


def passage_vector(number: int) -> np.ndarray:
    shares = {(2, together, number // together): share for together, share, _ in SUBJECTS}
    shares[3, 0, number] = 1 - sum(shares.values())
    return unit(
        sum(
            share**0.5 * unit(np.random.default_rng(seed).normal(size=DIMENSIONS))
            for seed, share in shares.items()
        )
    )


def make_tokens(words: np.ndarray, context: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    own = unit(rng.normal(size=(len(words), DIMENSIONS)))
    rest = 1 - OF_WORD - OF_PASSAGE
    return unit(OF_WORD**0.5 * word_vectors()[words] + OF_PASSAGE**0.5 * context + rest**0.5 * own)


def passage_tokens(number: int) -> np.ndarray:
    rng = np.random.default_rng((4, number))
    words = draw_words(number, rng, int(rng.integers(SHORTEST, LONGEST + 1)))
    return make_tokens(words, passage_vector(number), rng)


def make_query(number: int, passages: int, tokens: int = OF_QUERY) -> TokenQuery:
    """Half of the words are of one passage, the others of its subject or of the language."""
    rng = np.random.default_rng((5, number))
    passage = int(rng.integers(passages))
    again = np.random.default_rng((4, passage))
    words = draw_words(passage, again, int(again.integers(SHORTEST, LONGEST + 1)))
    chosen = np.append(rng.choice(words, tokens // 2), draw_words(passage, rng, tokens // 2))
    return TokenQuery(make_tokens(chosen, passage_vector(passage), rng), [""] * tokens)


def encode(texts: list[str]) -> np.ndarray:
    return stack_ragged([to_whole_numbers(passage_tokens(int(text.split()[0]))) for text in texts])


def made_passages(count: int) -> Iterator[Document]:
    for number in range(count):
        yield Document(f"{number:09}", "", f"{number} passage")


def measure_tokens(output: str, size: TokenSize) -> tuple[dict[str, float], dict]:
    """Return the figures of an index, and the load."""
    folder, machine = Path(output), Machine()
    if (folder / INDEX).exists():
        raise BertJaxError(f"{folder} holds an index already; name a new --output")
    built, turn = timed(run_in_process, build_index, folder, size.passages)
    return built | run_in_process(search_figures, folder, size), machine.load_during([turn])


def build_index(folder: Path, count: int) -> dict[str, float]:
    model = IndexedModel("", "", "", "maxsim", True, "", "", 512, DIMENSIONS)
    sample = [str(number) for number in range(min(count, 1024))]
    _, encoding = timed(encode, sample)
    with open_writer(folder / INDEX, IndexManifest(None, 512, 0, multi_vector_model=model)) as writer:
        cutter = PassageCutter(WordCounter(), 512, 0)
        _, turn = timed(writer.add_documents, made_passages(count), cutter, {TOKEN_ROWS: encode})
    return {
        "build_seconds": turn.seconds,
        "made_seconds": encoding.seconds * count / len(sample),
        "build_own_bytes": memory_bytes()["own_bytes"],
    }


def search_figures(folder: Path, size: TokenSize) -> dict[str, float]:
    index = Index.open(folder / INDEX)
    (segment,) = index.segments
    rows, everything = segment.rows[TOKEN_ROWS], np.arange(size.passages)
    queries = [make_query(number, size.passages) for number in range(size.queries)]
    draw = np.random.default_rng(6)
    chosen = [draw.choice(size.passages, min(RERANKED, size.passages), replace=False) for _ in queries]

    def search(query: TokenQuery) -> np.ndarray:
        ((passages, _),) = find_by_tokens(query, index.segments, AT)
        return passages

    pairs = list(zip(queries, chosen, strict=True))
    for query, passages in pairs:  # what they read is in memory then
        query.score(rows, passages)
        search(query)
    reranking = [timed(query.score, rows, passages)[1].seconds for query, passages in pairs]
    searching = [timed(search, query)[1].seconds for query in queries]
    memory, recalls = memory_bytes(), {}
    for tokens in (OF_QUERY, OF_QUESTION):
        hits = 0
        for number in range(EXACT_QUERIES):
            query = make_query(number, size.passages, tokens)
            best = np.argsort(-query.score(rows, everything), kind="stable")[:AT]
            hits += len(np.intersect1d(best, search(query)))
        recalls[f"recall_of_{tokens}"] = hits / (AT * EXACT_QUERIES)
    files = {path.name: path.stat().st_size for path in (folder / INDEX / "segments").rglob("*.npy")}
    percentiles = {
        f"{name}_p{p}_ms": 1e3 * float(np.percentile(seconds, p))
        for name, seconds in (("rerank", reranking), ("search", searching))
        for p in (50, 99)
    }
    return {
        **percentiles,
        **memory,
        **recalls,
        "tokens": len(rows.values) / size.passages,
        "token_bytes": sum(files[name] for name in (TOKEN_ROWS, TOKEN_STARTS)),
        "encoding_bytes": files[fixed_encodings.FILE],
    }


def describe_tokens(size: TokenSize, figures: dict[str, float], load: dict) -> str:
    f = figures
    return "\n".join(
        [
            f"{size.passages:,} passages of some {f['tokens']:.0f} token vectors of {DIMENSIONS}, {size.queries:,} "
            f"queries of {OF_QUERY}",
            f"to rerank {RERANKED} passages: p50 {f['rerank_p50_ms']:.1f} ms, p99 {f['rerank_p99_ms']:.1f} ms",
            f"to search for {AT}: p50 {f['search_p50_ms']:.1f} ms, p99 {f['search_p99_ms']:.1f} ms; recall@{AT} "
            f"{f[f'recall_of_{OF_QUERY}']:.3f} of MaxSim of all passages, and {f[f'recall_of_{OF_QUESTION}']:.3f} for "
            f"queries of {OF_QUESTION}, each with {EXACT_QUERIES} queries",
            f"built in {f['build_seconds']:.0f} s (of these, some {f['made_seconds']:.0f} s to make the vectors), with "
            f"{f['build_own_bytes'] / 1e6:,.0f} MB of its own memory",
            f"{f['token_bytes'] / size.passages:,.0f} bytes of token vectors a passage, and "
            f"{f['encoding_bytes'] / size.passages:,.0f} of encodings; searched with {f['own_bytes'] / 1e6:,.0f} MB "
            f"and {f['mapped_bytes'] / 1e6:,.0f} MB of pages of files",
            describe_load(load),
        ]
    )
