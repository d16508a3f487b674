"""`bert_jax.evaluate`, `evaluate_index` and `compare`: what `bert-jax evaluate` measures, from Python."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from os import PathLike
from typing import Any, Literal

from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.paths import require_path
from bert_jax.core.terminal import print_line
from bert_jax.inference.encoder import Encoder
from bert_jax.report.embedders.evaluate_embedders import Ranker
from bert_jax.report.embedders.evaluated_embedder import BM25
from bert_jax.report.evaluate_index import IndexEvalConfig, describe_index_evaluation
from bert_jax.report.model_evaluation import EvaluationSettings, evaluate_models
from bert_jax.runs.model_argument import AnyModel, open_model
from bert_jax.runs.train import format_call
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import is_index
from bert_jax.text.encoding_options import LONG


def evaluate(
    model: AnyModel,
    data: str | PathLike[str],
    *,
    text: str = "",
    text_pair: str = "",
    label: str = "",
    label_separator: str = "",
    skip_bad: bool = False,
    long_texts: Literal["truncate", "windows"] = "truncate",
    out_of_scope: str | PathLike[str] | None = None,
    split: str = "",
    dimensions: int | None = None,
    report: str | PathLike[str] | None = None,
) -> dict[str, Any]:
    """Measure a model on labelled data as `bert-jax evaluate` does, and return the object that its `--json` prints.

    `model` is the directory of a classifier, a tagger, a question-answering model, a cross-encoder or an embedder, or
    a loaded model. `data` is a file of labelled examples, or for an embedder also a folder of documents, queries and
    judgements; `text`, `text_pair` and `label` name its columns if they have unusual names, and `label_separator`
    separates several labels in one cell. `skip_bad` skips rows that are no examples, and counts them.
    `long_texts="windows"` reads long texts in windows instead of truncating them. `out_of_scope` is a file of texts
    that the model should refuse. `split` names judgements of a folder, and `dimensions` those of an embedder's
    vectors to keep. `report` is a directory for a report with pictures.

    >>> measured = bert_jax.evaluate("classifier", "train.csv", report="page")
    >>> measured["examples"], sorted(measured["metrics"])
    (24, ['accuracy', 'f1', 'f1_macro', 'matthews'])
    """
    settings = EvaluationSettings(
        data,
        text,
        text_pair,
        label,
        label_separator,
        skip_bad,
        long_texts,
        out_of_scope,
        split,
        dimensions,
        report,
    )
    return measure("evaluate", {"model": model}, settings)


def evaluate_index(
    index: str | PathLike[str] | Index,
    data: str | PathLike[str],
    *,
    split: str = "",
    reranker: AnyModel | None = None,
    rerank_top: int | None = None,
    report: str | PathLike[str] | None = None,
) -> dict[str, Any]:
    """Measure the searches of an index on a folder of documents, queries and judgements as `bert-jax evaluate --index`
    does, and return the object that its `--json` prints: the scores and times of its retrievers and their fusions,
    and with a `reranker`, the differences with intervals.

    `split` names judgements of the folder. The reranker scores the first `rerank_top` passages, 50 by default. `report`
    is a directory for a report with pictures.

    >>> measured = bert_jax.evaluate_index("index", "collection")
    >>> measured["ways"]["keywords"]["metrics"]["ndcg@10"]["value"]
    1.0
    """
    settings = EvaluationSettings(data, split=split, report=report)
    check_settings(settings)
    if rerank_top is not None:
        check_number(rerank_top, "rerank_top", is_whole=True, allowed=Range(1))
    with use_python_spelling():
        opened = index if isinstance(index, Index) else Index.open(require_path(index, "index"))
        eval_config = IndexEvalConfig(data, split, reranker, rerank_top)
        given = [repr(str(opened.path)), repr(str(data))]
        if reranker is not None:
            given.append(f"reranker={write_argument('reranker', reranker)}")
        options = given_options(settings) | ({} if rerank_top is None else {"rerank_top": rerank_top})
        command = format_call("evaluate_index", given, options)
        return describe_index_evaluation(opened, eval_config, report, command).finite_facts()


def compare(
    a: AnyModel | Index,
    b: AnyModel | Index,
    data: str | PathLike[str],
    *,
    text: str = "",
    text_pair: str = "",
    label: str = "",
    label_separator: str = "",
    skip_bad: bool = False,
    long_texts: Literal["truncate", "windows"] = "truncate",
    split: str = "",
    dimensions: int | None = None,
    report: str | PathLike[str] | None = None,
) -> dict[str, Any]:
    """Compare two models on the same data as `bert-jax evaluate --compare` does, and return the object that its
    `--json` prints: the scores of both, and the differences with intervals.

    The arguments are those of `evaluate`. On a folder of documents, `a` or `b` may be "bm25", or an index, which stands
    for its embedder and has the vectors of documents already. Only a comparison of embedders has a report.

    >>> compared = bert_jax.compare("classifier", "classifier", "train.csv")
    >>> compared["differences"]["accuracy"]["value"], compared["better"]
    (0.0, [])
    """
    settings = EvaluationSettings(
        data, text, text_pair, label, label_separator, skip_bad, long_texts, None, split, dimensions, report
    )
    return measure("compare", {"a": a, "b": b}, settings)


def measure(function: str, models: Mapping[str, Any], settings: EvaluationSettings) -> dict[str, Any]:
    check_settings(settings)
    given = [write_argument(name, model) for name, model in models.items()]
    command = format_call(function, [*given, repr(str(settings.data))], given_options(settings))
    with use_python_spelling(), ExitStack() as stack:
        opened = [open_ranker(name, model, stack) for name, model in models.items()]
        evaluation, table = evaluate_models(opened, replace(settings, command=command))
        if table:
            print_line(table)
    return evaluation.finite_facts()


def open_ranker(name: str, model: AnyModel | Index, stack: ExitStack) -> Ranker:
    if isinstance(model, Index) or (isinstance(model, str) and model == BM25.name):
        return model
    if not isinstance(model, Encoder) and is_index(require_path(model, name)):
        return Index.open(model)
    return stack.enter_context(open_model(name, model))


def write_argument(name: str, model: AnyModel | Index) -> str:
    """Return a model as an argument in a report: its directory, or the name of the argument if it was loaded."""
    return (
        name if isinstance(model, Encoder) else repr(str(model.path if isinstance(model, Index) else model))
    )


def given_options(settings: EvaluationSettings) -> dict[str, Any]:
    return {
        field.name: value
        for field in fields(settings)
        if field.name != "data" and (value := getattr(settings, field.name)) != field.default
    }


def check_settings(settings: EvaluationSettings) -> None:
    require_path(settings.data, "data")
    for name in ("out_of_scope", "report"):
        if (path := getattr(settings, name)) is not None:
            require_path(path, name)
    for name in ("text", "text_pair", "label", "label_separator", "split"):
        if not isinstance(value := getattr(settings, name), str):
            raise BertJaxError(f"{name} must be a string, not {value!r:.60}")
    check_flag(settings.skip_bad, "skip_bad")
    check_name(settings.long_texts, LONG, "way to read long texts")
    if settings.dimensions is not None:
        check_number(settings.dimensions, "dimensions", is_whole=True, allowed=Range(1))
