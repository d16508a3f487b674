"""Measure how well an index finds documents by keywords, vectors or both, and with a reranker: `evaluate --index`."""

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.arguments import spell_setting
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from bert_jax.core.output import atomic_directory
from bert_jax.core.progress import track
from bert_jax.data.examples.beir import BeirDataset, read_beir
from bert_jax.inference.encoder import Encoder
from bert_jax.metrics import retrieval
from bert_jax.metrics.intervals import RESAMPLES, Interval, bootstrap_intervals, difference_intervals
from bert_jax.metrics.retrieval import DEPTH, MAIN_METRIC
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.report.embedders.embedder_results import SHOWN, ExampleTable, difference_cells, picture_lines
from bert_jax.report.embedders.search_results import SearchResults, plot_recall
from bert_jax.report.evaluation import Evaluation
from bert_jax.report.plots import finish_axes, save_plot
from bert_jax.report.prediction_page import markdown_table
from bert_jax.search.index import FUSION, KEYWORDS, RERANK_TOP, VECTORS, Hit, Index
from bert_jax.search.retrievers import count_bytes

SHOWN_MEASURES = (MAIN_METRIC, "mrr@10", "recall@100")
RERANKED = "reranked"


@dataclass(frozen=True)
class IndexEvalConfig:
    data: str | PathLike[str]  # a folder in BEIR's layout
    split: str = ""
    reranker: str | PathLike[str] | Encoder | None = None
    rerank_top: int | None = None  # None: RERANK_TOP

    def __post_init__(self):
        if self.rerank_top is not None and self.reranker is None:
            raise BertJaxError(
                spell_setting(
                    "--rerank-top is for --rerank; add --rerank DIR, or leave it out",
                    "rerank_top is for a reranker; give one, or leave it out",
                )
            )

    def search_methods(self, index: Index) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name of each way to search the index, with its arguments for `Index.search`."""
        names = index.retrievers
        for size in range(1, len(names) + 1):
            for some in combinations(names, size):
                yield FUSION if 1 < size == len(names) else " + ".join(some), {"retrievers": some}
        if self.reranker is not None:
            yield RERANKED, {"reranker": self.reranker, "rerank_top": self.rerank_top or RERANK_TOP}


@dataclass(frozen=True)
class SearchMethod:
    """The results of one way to search, for each query."""

    name: str
    sums: ScoreSums
    search: SearchResults
    milliseconds: np.ndarray
    bytes_per_document: float  # of the files that it searches

    @property
    def quality(self) -> np.ndarray:
        return self.sums.compute_scores(self.sums.rows)[MAIN_METRIC]

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        return bootstrap_intervals(self.sums)

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.milliseconds, share))


@dataclass(frozen=True)
class IndexComparison:
    what: str
    notes: list[str]
    methods: list[SearchMethod]

    @cached_property
    def differences(self) -> dict[tuple[str, str], dict[str, Interval]]:
        """For every two ways, the second's scores minus the first's."""
        return {
            (a.name, b.name): difference_intervals(a.sums, b.sums) for a, b in combinations(self.methods, 2)
        }


def describe_index_evaluation(
    index: Index, eval_config: IndexEvalConfig, report: str | PathLike[str] | None, command: str
) -> Evaluation:
    with atomic_directory(Path(report)) if report else nullcontext() as folder:
        compared = measure_index(index, eval_config)
        if folder:
            write_index_report(folder, compared, command)
    return Evaluation(format_comparison(compared), comparison_to_json(index, eval_config, compared))


def measure_index(index: Index, eval_config: IndexEvalConfig) -> IndexComparison:
    judged = read_beir(eval_config.data, eval_config.split)
    indexed = {segment.ids[number] for segment in index.segments for number in segment.live_documents()}
    remedy = f"build one from {eval_config.data}: bert-jax index {eval_config.data} --output INDEX"
    notes = judged.note_missing(indexed, f"the index {index.path}", remedy)
    if eval_config.reranker is not None:  # refuse it before the other searches are timed
        index.load_reranker(eval_config.reranker)
    methods = [
        measure_searches(index, judged, name, settings)
        for name, settings in eval_config.search_methods(index)
    ]
    held = f"{len(index):,} documents ({index.manifest.passages:,} passages)"
    what = f"{len(judged.queries):,} queries of {eval_config.data}, in {held}"
    return IndexComparison(what, notes, methods)


def measure_searches(index: Index, judged: BeirDataset, name: str, settings: dict[str, Any]) -> SearchMethod:
    """Search for each query; measure the documents that are found, and the milliseconds that each search takes."""
    passages, documents = index.manifest.passages, len(index)
    top = DEPTH * min(3, -(-passages // max(documents, 1)))  # several passages may be of one document
    queries = [*judged.queries.values()]
    index.search(
        queries[0], top, explain=False, **settings
    )  # warm-up: don't time what the first search opens and compiles
    rankings, milliseconds = [], []
    for query in track(queries, "queries", name):
        begun = time.perf_counter()
        hits: list[Hit] = index.search(query, top, explain=False, **settings)
        milliseconds.append(1000 * (time.perf_counter() - begun))
        rankings.append(list(dict.fromkeys(hit.id for hit in hits))[:DEPTH])
    sums = retrieval.ranking_metrics(rankings, [*judged.relevant.values()])
    search = SearchResults.from_ids(judged, queries, rankings, name)
    size = count_bytes(index.manifest, settings.get("retrievers", index.retrievers))
    return SearchMethod(name, sums, search, np.array(milliseconds), size / max(documents, 1))


def format_comparison(compared: IndexComparison) -> list[str]:
    width = max(len(way.name) for way in compared.methods)
    lines = [compared.what, *compared.notes, ""]
    costs = "ms per query: median, p99  bytes per document"
    lines.append(f"  {'':<{width}}{''.join(f'{name:>26}' for name in SHOWN_MEASURES)}  {costs}")
    for way in compared.methods:
        known = way.intervals
        cells = (f"{x.value:.4f} ({x.low:.4f}-{x.high:.4f})" for x in map(known.__getitem__, SHOWN_MEASURES))
        times = f"{way.quantile(0.5):.1f}, {way.quantile(0.99):.1f}"
        lines.append(
            f"  {way.name:<{width}}{''.join(f'{cell:>26}' for cell in cells)}  {times:>25}"
            f"  {way.bytes_per_document:>18,.0f}"
        )
    if compared.differences:
        lines += ["", f"  differences of {MAIN_METRIC}"]
    for (a, b), gaps in compared.differences.items():
        gap = gaps[MAIN_METRIC]
        plain = "" if gap.low <= 0 <= gap.high else "   significant"
        lines.append(f"  {b} - {a}: {gap.value:+.4f} ({gap.low:+.4f} to {gap.high:+.4f}){plain}")
    return lines


def comparison_to_json(
    index: Index, eval_config: IndexEvalConfig, compared: IndexComparison
) -> dict[str, Any]:
    return {
        "index": str(index.path),
        "data": str(eval_config.data),
        "split": eval_config.split,
        "model": "model" if isinstance(index.model, Encoder) else str(index.model or ""),
        "reranker": "reranker"
        if isinstance(eval_config.reranker, Encoder)
        else str(eval_config.reranker or ""),
        "rerank_top": eval_config.rerank_top or RERANK_TOP,
        "what": compared.what,
        "notes": compared.notes,
        "ways": {
            way.name: {
                "metrics": {name: asdict(interval) for name, interval in way.intervals.items()},
                "milliseconds": {"median": way.quantile(0.5), "p99": way.quantile(0.99)},
                "bytes_per_document": way.bytes_per_document,
            }
            for way in compared.methods
        },
        "differences": [
            {"from": a, "to": b, **{name: asdict(gap) for name, gap in gaps.items()}}
            for (a, b), gaps in compared.differences.items()
        ],
    }


def write_index_report(directory: Path, compared: IndexComparison, command: str) -> None:
    lines = [f"# {compared.what}", "", *(f"- {note}" for note in compared.notes), "", "## Scores", ""]
    lines += [*score_table(compared.methods), "", "Times are from searches run one after another.", ""]
    lines += ["## Differences", "", *difference_table(compared), ""]
    times = [way.quantile(0.5) for way in compared.methods]
    file = plot_quality(directory / "quality.png", compared.methods, times, "milliseconds a query (median)")
    lines += picture_lines("Quality and time", f"{MAIN_METRIC} over milliseconds a query", file)
    sizes = [way.bytes_per_document for way in compared.methods]
    file = plot_quality(directory / "size.png", compared.methods, sizes, "bytes a document")
    lines += picture_lines("Quality and size", f"{MAIN_METRIC} over bytes a document", file)
    curves = {way.name: way.search.recall for way in compared.methods if " + " not in way.name}
    file = plot_recall(directory / "recall.png", curves, "recall: share of the relevant documents found")
    lines += picture_lines("Recall by depth", "recall by depth", file)
    for examples in example_tables(compared):
        lines += examples.lines
    lines += ["## Reproduce", "", f"    {command}", ""]
    write_atomically(directory / "report.md", "\n".join(lines))


def plot_quality(path: Path, ways: Sequence[SearchMethod], costs: Sequence[float], label: str) -> str:
    """Plot each way's score, with its 95 % interval, over what it costs."""

    def draw(axes):
        for way, cost in zip(ways, costs, strict=True):
            score = way.intervals[MAIN_METRIC]
            spread = [[score.value - score.low], [score.high - score.value]]
            axes.errorbar(cost, score.value, spread, fmt="o", capsize=3, label=way.name)
            axes.annotate(way.name, (cost, score.value), (5, 4), textcoords="offset points", fontsize=8)
        axes.set_xscale("log")
        axes.margins(x=0.25)
        finish_axes(axes, label, f"{MAIN_METRIC}, 95 % interval", 4)

    return save_plot(path, (6, 4.2), draw)


def score_table(ways: Sequence[SearchMethod]) -> list[str]:
    rows = [
        (
            way.name,
            name,
            x.value,
            f"{x.low:.4f} to {x.high:.4f}",
            f"{way.quantile(0.5):.1f}",
            f"{way.bytes_per_document:,.0f}",
        )
        for way in ways
        for name, x in way.intervals.items()
    ]
    header = "search", "score", "value", "95 % interval", "median ms per query", "bytes per document"
    return markdown_table(header, rows)


def difference_table(compared: IndexComparison) -> list[str]:
    if not compared.differences:
        return ["This index can be searched by keywords alone."]
    rows = [
        (b, a, name, *difference_cells(gaps[name]))
        for (a, b), gaps in compared.differences.items()
        for name in SHOWN_MEASURES
    ]
    note = (
        f"Intervals come from {RESAMPLES:,} bootstrap resamples of the queries, the same for all searches; they do not "
        "cover other data. A difference is significant if its interval excludes 0."
    )
    header = "search", "compared with", "score", "difference", "95 % interval", "significant"
    return [*markdown_table(header, rows), "", note]


def example_tables(compared: IndexComparison) -> list[ExampleTable]:
    """Show queries that one way answers and another does not, and queries that all ways miss."""
    by_name = {way.name: way for way in compared.methods}
    tables = []
    for a, b in (KEYWORDS, VECTORS), (VECTORS, KEYWORDS), (RERANKED, FUSION), (FUSION, RERANKED):
        if a in by_name and b in by_name:
            tables.append(better_queries(by_name[a], by_name[b]))
    return [*tables, missed_queries(compared.methods)]


def better_queries(a: SearchMethod, b: SearchMethod) -> ExampleTable:
    gap = a.quality - b.quality
    order = [int(q) for q in np.argsort(-gap, kind="stable") if gap[q] > 0]
    rows = [
        (
            a.search.queries[q],
            a.search.relevant_document(q),
            a.search.describe_rank(q),
            b.search.describe_rank(q),
            b.search.top_document(q),
        )
        for q in order[:SHOWN]
    ]
    return ExampleTable(
        f"Better with {a.name} than with {b.name}",
        f"{len(order):,} of {len(gap):,} queries; the largest differences of {MAIN_METRIC} first.",
        (
            "query",
            "relevant document",
            f"its rank with {a.name}",
            f"with {b.name}",
            f"ranked first with {b.name}",
        ),
        rows,
    )


def missed_queries(ways: Sequence[SearchMethod]) -> ExampleTable:
    positions = np.stack([way.search.first_ranks for way in ways])
    misses = np.flatnonzero((positions > 10).all(0))
    order = misses[np.argsort(-positions[:, misses].min(0), kind="stable")].tolist()
    rows = [ways[-1].search.describe_query(q) for q in order[:SHOWN]]
    return ExampleTable(
        "Queries that all miss",
        f"{len(order):,} of {positions.shape[1]:,} queries have no relevant document among the first ten of any "
        "search.",
        ("query", "relevant document", f"its rank with {ways[-1].name}", "ranked first"),
        rows,
    )
