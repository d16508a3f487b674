"""`bert-jax bench search`: how fast an index answers queries, one at a time and in batches.

Times include computing the queries' vectors. Each query runs once before it is timed, so the files are in memory.
"""

from collections.abc import Callable, Sequence

import numpy as np

from bert_jax.bench.text_speed import sample_texts
from bert_jax.bench.timing import (
    FEWEST,
    PERCENTILES,
    Figures,
    Machine,
    MeasuredTurns,
    Turn,
    timed,
    warmed_seconds,
)
from bert_jax.core.errors import BertJaxError
from bert_jax.search.index import Index

QUERIES, BATCH = 200, 64  # queries drawn, and searched together
WORDS = 8  # of a query that is the beginning of a passage


def measure_search(directory: str, source: str | None, as_json: bool = False) -> str:
    """Measure each way to search the index, and all of them together."""
    machine = Machine()
    index, opened = timed(Index.open, directory)
    if not len(index):
        raise BertJaxError(
            f"{directory} holds no documents; `bert-jax index DOCS --output {directory}` adds some"
        )
    queries = sample_queries(index, source)
    ways = [[name] for name in index.retrievers] + [index.retrievers] * (len(index.retrievers) > 1)
    figures, turns = dict[str, Figures](), [opened]
    for way in ways:
        figures[" + ".join(way)], taken = search_figures(
            lambda some, way=way: index.search(some, retrievers=way), queries
        )
        turns += taken
    title = (
        f"{len(queries)} queries, the 10 best of {index.manifest.passages:,} passages; "
        f"opened in {opened.seconds:.2f} s"
    )
    return MeasuredTurns(title, figures, machine.load_during(turns)).shown(as_json)


def search_figures(search: Callable, queries: Sequence[str]) -> tuple[Figures, list[Turn]]:
    """Return the figures of a way to search, and the turns that they come from."""

    def search_batches() -> None:
        for start in range(0, len(queries), BATCH):
            search(queries[start : start + BATCH])

    warmed_seconds(search, queries)
    search_batches()
    alone = [timed(warmed_seconds, search, queries) for _ in range(FEWEST)]
    batches = [timed(search_batches)[1] for _ in range(FEWEST)]
    milliseconds = 1e3 * np.array([seconds for seconds, _ in alone])
    figures = {f"one_query_p{p}_ms": float(np.percentile(milliseconds, p)) for p in PERCENTILES}
    figures[f"queries_per_second,_{BATCH}_at_once"] = len(queries) / float(
        np.median([turn.seconds for turn in batches])
    )
    return figures, [turn for _, turn in alone] + batches


def sample_queries(index: Index, source: str | None) -> list[str]:
    """Return lines of the file, or the first words of passages, always the same ones."""
    if source:
        return sample_texts(source, QUERIES)
    passages = [(segment, row) for segment in index.segments for row in range(len(segment.texts))]
    drawn = np.random.RandomState(0).permutation(len(passages))[:QUERIES]
    texts = (segment.texts[row] for segment, row in (passages[n] for n in drawn))
    return [" ".join(text.split()[:WORDS]) for text in texts]
