"""Measure one model, or compare two: the data and the models decide whether predictions or vectors are measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

from bert_jax.core.arguments import spell_setting
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.beir import is_beir
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.group_columns import GroupColumns
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.inference.load import load
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.report.compare import compare_models
from bert_jax.report.embedders import evaluate_embedders as embedders
from bert_jax.report.embedders.evaluated_embedder import EmbedderEvalConfig
from bert_jax.report.evaluate_predictions import (
    PredictionEvalConfig,
    describe_table,
    evaluate_directory,
    run_evaluation,
)
from bert_jax.report.evaluation import Evaluation
from bert_jax.report.prediction_page import evaluate_with_report


@dataclass(frozen=True)
class EvaluationSettings:
    """What to measure on, how to read it, and what to write."""

    data: str | PathLike[str]
    text: str = ""
    text_pair: str = ""
    label: str = ""
    label_separator: str = ""
    skip_bad: bool = False
    long_texts: str = "truncate"
    out_of_scope: str | PathLike[str] | None = None
    split: str = ""
    dimensions: int | None = None
    report: str | PathLike[str] | None = None
    command: str = ""  # what the report shows as its command


def evaluate_models(
    models: Sequence[embedders.Ranker], settings: EvaluationSettings
) -> tuple[Evaluation, str]:
    """Return the scores of a model or a comparison of two, and what the columns of the data were used for. Write a
    report if the settings name one."""
    if embedders.evaluates_vectors(models, str(settings.data)):
        return evaluate_vectors(models, settings)
    directories = [model for model in models if isinstance(model, ModelDirectory)]
    return evaluate_predictions(directories, settings)


def measure_scores(directory: ModelDirectory, data: str) -> tuple[str, ScoreSums]:
    """Return the name of a model's main score, and the sums of all its scores on labelled data."""
    if embedders.evaluates_vectors([directory], data):
        _, (measured,) = embedders.measure_embedders([directory], EmbedderEvalConfig(data))
        return next(iter(measured.sums.scores)), measured.sums
    given, _ = run_evaluation(load(directory), PredictionEvalConfig(data))
    return given.kind.best_metric, given.score_sums


def evaluate_vectors(
    models: Sequence[embedders.Ranker], settings: EvaluationSettings
) -> tuple[Evaluation, str]:
    data = str(settings.data)
    refused = ["out_of_scope", "label_separator"]
    if is_beir(data):
        refused += ["text", "text_pair", "label", "skip_bad"]
    if unused := [name for name in refused if getattr(settings, name)]:
        raise BertJaxError(
            f"--{unused[0].replace('_', '-')} does not apply where vectors are measured on {data}; leave it out"
        )
    texts = tuple(name for name in (settings.text, settings.text_pair) if name)
    groups = GroupColumns(texts, settings.label, skip_bad=settings.skip_bad)
    eval_config = EmbedderEvalConfig(data, settings.split, groups, settings.dimensions, settings.long_texts)
    results = embedders.evaluate_embedders(models, eval_config, settings.report, settings.command)
    return results, embedders.describe_table(models, eval_config)


def evaluate_predictions(
    models: Sequence[ModelDirectory], settings: EvaluationSettings
) -> tuple[Evaluation, str]:
    if settings.split or settings.dimensions:
        raise BertJaxError(
            "--split and --dimensions are not for predictions of labels, tags or answers; leave them out"
        )
    columns = ExampleColumns(
        settings.text,
        settings.text_pair,
        settings.label,
        label_separator=settings.label_separator,
        skip_bad=settings.skip_bad,
    )
    data, out_of_scope = str(settings.data), str(settings.out_of_scope or "")
    eval_config = PredictionEvalConfig(data, columns, settings.long_texts, out_of_scope)
    if len(models) == 2:
        if settings.report:
            raise BertJaxError(
                spell_setting(
                    "--report needs --model; a comparison is printed as lines, or with --json",
                    "a comparison of predictions has no report; leave report out, or evaluate each of the models",
                )
            )
        if settings.out_of_scope:
            raise BertJaxError("--out-of-scope needs --model; evaluate each of the two models with it")
        first, second = models
        results = compare_models(first, second, data, columns, settings.long_texts)
    elif settings.report:
        results = evaluate_with_report(settings.report, models[0], eval_config, settings.command)
    else:
        results = evaluate_directory(models[0], eval_config)
    return results, describe_table(models[0], eval_config)
