"""Score a model directory on labelled texts: the verb `evaluate`.

The model's head, and for a classifier its problem_type, decide which metrics are computed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.inference.text_outcomes import predict_outcomes, read_examples
from bert_jax.metrics.intervals import Interval, bootstrap_intervals
from bert_jax.predictions import training_origin
from bert_jax.predictions.kind import Outcomes, find_kind
from bert_jax.report.evaluation import Evaluation
from bert_jax.report.out_of_scope_detection import (
    OutOfScopeComparison,
    OutOfScopeScores,
    compare_with_known,
    format_out_of_scope,
    read_out_of_scope_texts,
)


@dataclass(frozen=True)
class PredictionEvalConfig:
    """The data that a model is scored on, and how to read it."""

    data: str
    columns: ExampleColumns = AUTODETECT
    long_texts: str = "truncate"
    out_of_scope: str = ""  # a file of texts that the model should refuse


@dataclass
class PredictionScores:
    """The task that was scored, its metrics, and notes for whoever reads them."""

    task: str
    examples: int
    metrics: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)  # of the metrics
    by_kind: dict[str, dict[str, float]] = field(default_factory=dict)  # scores of each kind of tagged span
    notes: list[str] = field(default_factory=list)
    out_of_scope: OutOfScopeScores | None = None


def describe_prediction_scores(scored: PredictionScores, directory, data: str) -> Evaluation:
    facts = {"model": str(directory), "data": data} | asdict(scored)
    if scored.out_of_scope is None:
        del facts["out_of_scope"]
    lines = [f"{directory} on {scored.examples:,} examples of {data}: {scored.task}", *scored.notes]
    lines += interval_rows(scored.intervals)
    if scored.by_kind:
        width = max(map(len, scored.by_kind))
        header = "".join(f"{name:>11}" for name in next(iter(scored.by_kind.values())))
        lines.append(f"  {'':<{width}}  {header}")
        for name, scores in scored.by_kind.items():
            values = (f"{x:11.4f}" if isinstance(x, float) else f"{x:>11,}" for x in scores.values())
            lines.append(f"  {name:<{width}}  {''.join(values)}")
    if scored.out_of_scope:
        lines += format_out_of_scope(scored.out_of_scope)
    return Evaluation(lines, facts)


def interval_rows(intervals: Mapping[str, Interval]) -> list[str]:
    """Return the lines that show scores with their intervals."""
    width = max(map(len, intervals))
    return [
        f"  {'':<{width}}           95 % interval",
        *(f"  {name:<{width}}  {x.value:.4f}   {x.low:.4f} to {x.high:.4f}" for name, x in intervals.items()),
    ]


def score_outcomes(given: Outcomes, compared: OutOfScopeComparison | None = None) -> PredictionScores:
    sums = given.score_sums
    return PredictionScores(
        given.kind.title,
        len(given.examples),
        sums.scores,
        bootstrap_intervals(sums),
        given.kind.targets.score_breakdown(given.predictions, given.truth),
        list(given.notes),
        compared.scores if compared else None,
    )


def run_evaluation(
    model: Encoder, eval_config: PredictionEvalConfig
) -> tuple[Outcomes, OutOfScopeComparison | None]:
    examples, known = read_examples(model, eval_config.data, eval_config.columns)
    if not eval_config.out_of_scope:
        return predict_outcomes(model, examples, known, eval_config.long_texts), None
    texts = read_out_of_scope_texts(model, eval_config.out_of_scope, eval_config.columns)
    given = predict_outcomes(model, examples, known, eval_config.long_texts, compares=True)
    return given, compare_with_known(model, given, texts, eval_config.long_texts)


def describe_table(directory, eval_config: PredictionEvalConfig) -> str:
    """Describe which column of the table is used for what, if the model's kind says so; otherwise return ""."""
    model = ModelDirectory.open(directory)
    kind, origin = find_kind(model.layout), training_origin.read_origin(model.path)
    columns = origin.complete_columns(eval_config.columns)
    return kind.reader.describe_columns(eval_config.data, columns) if kind else ""


def evaluate_directory(directory, eval_config: PredictionEvalConfig) -> Evaluation:
    given, compared = run_evaluation(load(directory), eval_config)
    return describe_prediction_scores(score_outcomes(given, compared), directory, eval_config.data)
