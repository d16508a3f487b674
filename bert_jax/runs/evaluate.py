"""`bert_jax.evaluate` and `bert_jax.compare`: what `bert-jax evaluate` measures, from Python."""

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from os import PathLike
from typing import Any, Literal

from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.paths import require_path
from bert_jax.core.terminal import print_line
from bert_jax.inference.encoder import Encoder
from bert_jax.report.embedders.bm25 import BM25
from bert_jax.report.model_evaluation import EvaluationSettings, describe_models
from bert_jax.runs.model_argument import AnyModel, open_model
from bert_jax.runs.train import format_call
from bert_jax.text.truncation import LONG


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
    judgements; `text`, `text_pair` and `label` name its columns if they have unusual names. `out_of_scope` is a file of
    texts that the model should refuse. `split` names judgements of a folder, and `dimensions` those of an embedder's
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


def compare(
    a: AnyModel,
    b: AnyModel,
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

    The arguments are those of `evaluate`. On a folder of documents, `a` or `b` may be "bm25". Only a comparison of
    embedders has a report.

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
    names = [name if isinstance(model, Encoder) else repr(str(model)) for name, model in models.items()]
    options = {
        field.name: value
        for field in fields(settings)
        if field.name != "data" and (value := getattr(settings, field.name)) != field.default
    }
    command = format_call(function, [*names, repr(str(settings.data))], options)
    with use_python_spelling(), ExitStack() as stack:
        opened = [
            BM25.name if is_bm25(model) else stack.enter_context(open_model(name, model))
            for name, model in models.items()
        ]
        results, table = describe_models(opened, replace(settings, command=command), as_json=True)
        if table:
            print_line(table, sys.stderr)
    return json.loads(results)


def is_bm25(model: AnyModel) -> bool:
    return isinstance(model, str) and model == BM25.name


def check_settings(settings: EvaluationSettings) -> None:
    require_path(settings.data, "data")
    for name in ("out_of_scope", "report"):
        if (path := getattr(settings, name)) is not None:
            require_path(path, name)
    for name in ("text", "text_pair", "label", "label_separator", "split"):
        if not isinstance(value := getattr(settings, name), str):
            raise BertJaxError(f"{name} must be a string, not {value!r:.60}")
    if not isinstance(settings.skip_bad, bool):
        raise BertJaxError(f"skip_bad must be True or False, not {settings.skip_bad!r:.60}")
    check_name(settings.long_texts, LONG, "way to read long texts")
    if settings.dimensions is not None:
        check_number(settings.dimensions, "dimensions", is_whole=True, allowed=Range(1))
