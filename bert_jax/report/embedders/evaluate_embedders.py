"""Run `evaluate` for one embedder or a comparison of two. The shape of the data determines what is measured: documents
and queries, scored pairs, pairs, or texts with labels."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.output import building
from bert_jax.data.examples.groups import read_unpaired, remembered
from bert_jax.data.examples.judged import is_judged
from bert_jax.hub import directory as hub
from bert_jax.predictions import origin as origins
from bert_jax.predictions.kind import known_kind
from bert_jax.report.compare import score_lines
from bert_jax.report.embedders.bitext import Bitext
from bert_jax.report.embedders.bm25 import BM25
from bert_jax.report.embedders.clustering import Clusters
from bert_jax.report.embedders.document_retrieval import Documents
from bert_jax.report.embedders.embedder_eval_config import Trial
from bert_jax.report.embedders.embedder_page import notes_of, write
from bert_jax.report.embedders.embedder_results import Data, Measured
from bert_jax.report.embedders.evaluated_embedder import Embedder
from bert_jax.report.embedders.scored_pairs import Pairs
from bert_jax.report.intervals import differences, intervals
from bert_jax.report.prediction_page import FILES


def is_of_embeddings(directory, data: str) -> bool:
    """Return whether to evaluate vectors: the data has documents and queries, or the model makes no predictions."""
    return directory == BM25.name or is_judged(data) or known_kind(hub.survey(directory)[0]) is None


def read(trial: Trial) -> Data:
    if is_judged(trial.data):
        return Documents(trial)
    groups = read_unpaired(trial.data, trial.columns)
    texts, scores = len(groups[0].texts), len(groups[0].scores)
    if texts == 2 and scores < 2:
        return Pairs(trial, groups) if scores else Bitext(trial, groups)
    if texts == 1 and groups[0].alike:
        return Clusters(trial, groups)
    raise BertJaxError(
        f"{trial.data}: texts in a row: {texts}, scores: {scores}; an embedder is evaluated on rows of two texts "
        "and their score, two texts that belong together, or a text and its label, or on a folder with corpus.jsonl, "
        "queries.jsonl and qrels.tsv; name columns with --text, --pair, --label"
    )


def describe(
    names: Sequence[str], trial: Trial, as_json: bool = False, report: str = "", command: str = ""
) -> str:
    """Describe one embedder, or two on the same data, as lines or JSON. Write a report to `report` if given."""
    if report:
        with building(Path(report), FILES) as new:
            data, measured = measure(names, trial)
            write(new, data, measured, command)
    else:
        data, measured = measure(names, trial)
    if as_json:
        return to_json({"data": trial.data, "what": data.what, **in_json(data, measured)})
    return "\n".join(in_lines(data, measured))


def measure(names: Sequence[str], trial: Trial) -> tuple[Data, list[Measured]]:
    if names[0] != BM25.name and not is_judged(trial.data):
        before = origins.read(hub.existing(names[0])).columns
        trial = replace(trial, columns=remembered(trial.data, trial.columns, before))
    data = read(trial)
    if BM25.name in names and not isinstance(data, Documents):
        raise BertJaxError(
            f"bm25 ranks documents for queries, and {trial.data} has none; name a model directory instead, or a "
            "folder with corpus.jsonl, queries.jsonl and qrels.tsv"
        )
    return data, [data.measure(BM25() if name == BM25.name else Embedder(name, trial)) for name in names]


def in_lines(data: Data, measured: Sequence[Measured]) -> list[str]:
    notes = notes_of(data, measured)
    if len(measured) == 2:
        a, b = measured
        lines = score_lines([a.sums.scores, b.sums.scores], differences(a.sums, b.sums))
        return [f"A {a.name}, B {b.name}, on {data.what}", *notes, *lines]
    known = intervals(measured[0].sums)
    width = max(map(len, known))
    lines = [f"{measured[0].name} on {data.what}", *notes, f"  {'':<{width}}           95 % interval"]
    return lines + [
        f"  {name:<{width}}  {x.value:.4f}   {x.low:.4f} to {x.high:.4f}" for name, x in known.items()
    ]


def in_json(data: Data, measured: Sequence[Measured]) -> dict[str, Any]:
    of_each = [
        {
            "model": side.name,
            "notes": side.notes,
            "metrics": {name: asdict(interval) for name, interval in intervals(side.sums).items()},
            **side.facts,
            "worst": side.worst.objects,
        }
        for side in measured
    ]
    if len(measured) == 1:
        return of_each[0] | {"notes": notes_of(data, measured)}
    a, b = measured
    better, worse = a.changes(b)
    return {
        "notes": data.notes,
        "models": of_each,
        "differences": {name: asdict(x) for name, x in differences(a.sums, b.sums).items()},
        "better": better.objects,
        "worse": worse.objects,
    }
