"""Compare two models on the same examples: the differences of their scores, and the changed predictions."""

from dataclasses import asdict, replace

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.inference.load import load
from bert_jax.inference.text_outcomes import predict_outcomes, read_examples
from bert_jax.metrics.intervals import Interval, difference_intervals
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.label_matching import abbreviate_labels
from bert_jax.predictions.report_data import ReportExample
from bert_jax.report.evaluation import Evaluation
from bert_jax.report.prediction_page import shorten

MAX_CHANGED = 10  # the number of examples shown of each sort


def compare_models(
    a, b, data: str, columns: ExampleColumns = AUTODETECT, long_texts: str = "truncate"
) -> Evaluation:
    models = [load(directory) for directory in (a, b)]
    examples, label_order = read_examples(models[0], data, columns)
    pair = [predict_outcomes(model, examples, label_order, long_texts) for model in models]
    first, second = (given.kind for given in pair)
    if first.name != second.name or sorted(first.labels) != sorted(second.labels):
        raise BertJaxError(
            f"{a} predicts {first.name} ({abbreviate_labels(first.labels) or 'no labels'}) and {b} {second.name} "
            f"({abbreviate_labels(second.labels) or 'no labels'}); compare models that have the same labels"
        )
    pair[1].kind = replace(second, order=first.order)  # f1 is about the second label in `order`
    sums = pair[0].score_sums, pair[1].score_sums
    scores, score_differences = [s.scores for s in sums], difference_intervals(*sums)
    notes = list(dict.fromkeys(note for given in pair for note in given.notes))
    shown = [given.report_data.examples for given in pair]
    better, worse, other = changed_examples(pair, shown)
    facts = {
        "models": [str(a), str(b)],
        "data": data,
        "notes": notes,
        "scores": scores,
        "differences": {name: asdict(interval) for name, interval in score_differences.items()},
        "better": better,
        "worse": worse,
        "otherwise": other,
    }
    lines = [
        f"A {a}, B {b}, on {len(examples):,} examples of {data}",
        *notes,
        *score_lines(scores, score_differences),
    ]
    if not all(shown):
        return Evaluation(lines, facts)
    lines.append(
        f"only B is right on {pluralize(len(better), 'example')}, only A on {len(worse):,}; on {len(other):,} both are "
        "wrong, with different predictions"
    )
    for name, indices in (("only B is right", better), ("only A is right", worse)):
        for i in indices[:MAX_CHANGED]:
            in_a, in_b = (side[i] for side in shown)
            lines.append(f"  {name}: {in_a.where}: {shorten(in_a.text)}")
            lines.append(
                f"    true {shorten(in_a.true)} | A {shorten(in_a.predicted)} | B {shorten(in_b.predicted)}"
            )
    return Evaluation(lines, facts)


def score_lines(scores: list[dict[str, float]], score_differences: dict[str, Interval]) -> list[str]:
    width = max(map(len, score_differences))
    lines = [f"  {'':<{width}}{'A':>9}{'B':>9}{'B - A':>9}   95 % interval"]
    for name, gap in score_differences.items():
        plain = "" if gap.low <= 0 <= gap.high else "   significant"
        values = f"{scores[0][name]:9.4f}{scores[1][name]:9.4f}{gap.value:+9.4f}"
        lines.append(f"  {name:<{width}}{values}   {gap.low:+.4f} to {gap.high:+.4f}{plain}")
    return lines


def changed_examples(
    pair: list[Outcomes], shown: list[list[ReportExample]]
) -> tuple[list[int], list[int], list[int]]:
    """Return the indices of three sorts of examples: only b is right, only a is right, both are wrong but differ."""
    if not all(shown):  # nothing is right or wrong
        return [], [], []
    a, b = (np.array([example.right for example in side]) for side in shown)
    differ = np.array([x != y for x, y in zip(*(given.predictions for given in pair), strict=True)])
    better, worse, other = (np.flatnonzero(which).tolist() for which in (~a & b, a & ~b, ~a & ~b & differ))
    return better, worse, other
