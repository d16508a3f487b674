"""Run `evaluate` for one embedder or a comparison of two. The shape of the data determines what is measured: documents
and queries, scored pairs, or pairs."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from bert_jax.core.output import atomic_directory
from bert_jax.data.examples.beir import is_beir
from bert_jax.data.examples.group_columns import describe_columns, reuse_training_columns
from bert_jax.data.examples.groups import read_unpaired
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.metrics.intervals import RESAMPLES, Interval, difference_intervals
from bert_jax.predictions import training_origin
from bert_jax.predictions.kind import find_kind
from bert_jax.report.compare import score_lines
from bert_jax.report.embedders.bitext import Bitext
from bert_jax.report.embedders.document_retrieval import RetrievalData
from bert_jax.report.embedders.embedder_results import EmbedderResults, EvaluationData, difference_cells
from bert_jax.report.embedders.evaluated_embedder import (
    BM25,
    EmbedderEvalConfig,
    EvaluatedEmbedder,
    EvaluatedIndex,
)
from bert_jax.report.embedders.scored_pairs import ScoredPairsData
from bert_jax.report.evaluate_predictions import interval_rows
from bert_jax.report.evaluation import Evaluation
from bert_jax.report.prediction_page import interval_lines, markdown_table
from bert_jax.search.index import Index

# What ranks documents for queries: "bm25", an embedder, or that of an index.
Ranker = str | ModelDirectory | Index


def evaluates_vectors(models: Sequence[Ranker], data: str) -> bool:
    """Return whether to evaluate vectors: the data has documents and queries, or a model makes no predictions."""
    directories = [model for model in models if isinstance(model, ModelDirectory)]
    return is_beir(data) or len(directories) < len(models) or find_kind(directories[0].layout) is None


def read_evaluation_data(eval_config: EmbedderEvalConfig) -> EvaluationData:
    if is_beir(eval_config.data):
        return RetrievalData(eval_config)
    groups = read_unpaired(eval_config.data, eval_config.columns)
    texts, scores = len(groups[0].texts), len(groups[0].scores)
    if texts == 2 and scores < 2:
        return ScoredPairsData(eval_config, groups) if scores else Bitext(eval_config, groups)
    raise BertJaxError(
        f"{eval_config.data}: texts in a row: {texts}, scores: {scores}; an embedder is evaluated on rows of two texts "
        "and their score or two texts that belong together, or on a folder with corpus.jsonl, queries.jsonl and "
        "qrels.tsv; name columns with --text, --text-pair, --label"
    )


def evaluate_embedders(
    names: Sequence[Ranker], eval_config: EmbedderEvalConfig, report: str | PathLike[str] | None, command: str
) -> Evaluation:
    """Evaluate one embedder, or two on the same data. Write a report to the directory `report` if given."""
    with atomic_directory(Path(report)) if report else nullcontext() as folder:
        measured = MeasuredEmbedders(*measure_embedders(names, eval_config))
        if folder:
            measured.write_report(folder, command)
    return Evaluation(measured.lines, {"data": eval_config.data} | measured.facts)


def describe_table(names: Sequence[Ranker], eval_config: EmbedderEvalConfig) -> str:
    """Describe which column of the table is used for what; "" for a folder of documents and queries."""
    if is_beir(eval_config.data):
        return ""
    columns = complete_columns(names, eval_config).columns
    return describe_columns(eval_config.data, columns, "--text, --text-pair or --label")


def complete_columns(names: Sequence[Ranker], eval_config: EmbedderEvalConfig) -> EmbedderEvalConfig:
    """Fill in the columns that the user named for training."""
    if not isinstance(names[0], ModelDirectory) or is_beir(eval_config.data):
        return eval_config
    training_columns = training_origin.read_origin(names[0].path).columns
    return replace(
        eval_config, columns=reuse_training_columns(eval_config.data, eval_config.columns, training_columns)
    )


def measure_embedders(
    names: Sequence[Ranker], eval_config: EmbedderEvalConfig
) -> tuple[EvaluationData, list[EmbedderResults]]:
    eval_config = complete_columns(names, eval_config)
    data = read_evaluation_data(eval_config)
    if not isinstance(data, RetrievalData):
        for name in names:
            if not isinstance(name, ModelDirectory):
                ranker = name.path if isinstance(name, Index) else name
                raise BertJaxError(
                    f"{ranker} ranks documents for queries, and {eval_config.data} has none; name a model directory "
                    "instead, or a folder with corpus.jsonl, queries.jsonl and qrels.tsv"
                )
    return data, [data.measure(open_ranker(name, eval_config)) for name in names]


def open_ranker(name: Ranker, eval_config: EmbedderEvalConfig) -> EvaluatedEmbedder | BM25:
    if isinstance(name, Index):
        return EvaluatedIndex(name, eval_config)
    return BM25() if name == BM25.name else EvaluatedEmbedder(name, eval_config)


@dataclass(frozen=True)
class MeasuredEmbedders:
    """The results of one embedder, or of two on the same data."""

    data: EvaluationData
    sides: Sequence[EmbedderResults]

    @property
    def notes(self) -> list[str]:
        """The notes on the data, and on how each embedder read it."""
        names = ["", ""] if len(self.sides) == 1 else ["A: ", "B: "]
        of_sides = (f"{name}{n}" for name, side in zip(names, self.sides, strict=False) for n in side.notes)
        return [*self.data.notes, *of_sides]

    @cached_property
    def differences(self) -> dict[str, Interval]:
        a, b = self.sides
        return difference_intervals(a.sums, b.sums)

    @property
    def lines(self) -> list[str]:
        a, *others = self.sides
        if not others:
            return [f"{a.name} on {self.data.what}", *self.notes, *interval_rows(a.intervals)]
        lines = score_lines([side.sums.scores for side in self.sides], self.differences)
        return [f"A {a.name}, B {others[0].name}, on {self.data.what}", *self.notes, *lines]

    @property
    def facts(self) -> dict[str, Any]:
        sides = [
            {
                "model": side.name,
                "notes": side.notes,
                "metrics": {name: asdict(interval) for name, interval in side.intervals.items()},
                **side.facts,
                "worst": side.worst_examples.objects,
            }
            for side in self.sides
        ]
        if len(sides) == 1:
            return {"what": self.data.what} | sides[0] | {"notes": self.notes}
        a, b = self.sides
        better, worse = a.compare_with(b)
        return {
            "what": self.data.what,
            "notes": self.data.notes,
            "models": sides,
            "differences": {name: asdict(x) for name, x in self.differences.items()},
            "better": better.objects,
            "worse": worse.objects,
        }

    @property
    def score_table(self) -> list[str]:
        """The table of scores with their intervals or, of two embedders, those of their differences, and a note."""
        units = self.data.units
        if len(self.sides) == 1:
            return interval_lines(self.sides[0].sums, units)
        first, second = (side.sums.scores for side in self.sides)
        rows = [
            (name, first[name], second[name], *difference_cells(gap))
            for name, gap in self.differences.items()
        ]
        note = (
            f"Intervals come from {RESAMPLES:,} bootstrap resamples of the {units}, the same for both; they do not "
            "cover other data or seeds. A difference is significant if its interval excludes 0."
        )
        return [*markdown_table(("score", "A", "B", "B - A", "95 % interval", "significant"), rows), "", note]

    def write_report(self, directory: Path, command: str) -> None:
        a, *others = self.sides
        other = others[0] if others else None
        title = f"{a.name} (A) and {other.name} (B)" if other else a.name
        lines = [f"# {title} on {self.data.what}", "", f"{date.today()}.", ""]
        lines += [*(f"- {note}" for note in self.notes), "", "## Scores", "", *self.score_table, ""]
        lines += a.pictures(directory, other)
        for examples in a.compare_with(other) if other else [a.worst_examples]:
            lines += examples.lines
        lines += ["## Reproduce", "", f"    {command}", ""]
        write_atomically(directory / "report.md", "\n".join(lines))
