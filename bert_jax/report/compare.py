"""Compare two models on the same examples: the differences of their scores, and the changed predictions."""

from dataclasses import asdict, replace

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.terminal import counted
from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.inference.model import load
from bert_jax.inference.outcomes import outcomes, read
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.matching import shortened
from bert_jax.predictions.view import Shown
from bert_jax.report.intervals import Interval, differences
from bert_jax.report.prediction_page import cut

CHANGED = 10  # the number of examples shown of each sort


def compare(a, b, data: str, columns: Columns = EVIDENT, long: str = "cut", as_json: bool = False) -> str:
    models = [load(directory) for directory in (a, b)]
    examples, known = read(models[0], data, columns)
    pair = [outcomes(model, examples, known, long) for model in models]
    first, second = (given.kind for given in pair)
    if first.name != second.name or sorted(first.labels) != sorted(second.labels):
        raise BertJaxError(
            f"{a} predicts {first.name} ({shortened(first.labels) or 'no labels'}) and {b} {second.name} "
            f"({shortened(second.labels) or 'no labels'}); compare models that have the same labels"
        )
    pair[1].kind = replace(second, order=first.order)  # f1 is about the second label in `order`
    sums = pair[0].sums, pair[1].sums
    scores, apart = [s.scores for s in sums], differences(*sums)
    shown = [given.view.shown for given in pair]
    better, worse, other = changes(pair, shown)
    if as_json:
        whole = {
            "models": [str(a), str(b)],
            "data": data,
            "scores": scores,
            "differences": {name: asdict(interval) for name, interval in apart.items()},
            "better": better,
            "worse": worse,
            "otherwise": other,
        }
        return to_json(whole)
    lines = [f"A {a}, B {b}, on {len(examples):,} examples of {data}", *score_lines(scores, apart)]
    if not all(shown):
        return "\n".join(lines)
    lines.append(
        f"only B is right on {counted(len(better), 'example')}, only A on {len(worse):,}; on {len(other):,} both are "
        "wrong, with different predictions"
    )
    for name, places in (("only B is right", better), ("only A is right", worse)):
        for i in places[:CHANGED]:
            in_a, in_b = (side[i] for side in shown)
            lines.append(f"  {name}: {in_a.where}: {cut(in_a.text)}")
            lines.append(f"    true {cut(in_a.true)} | A {cut(in_a.predicted)} | B {cut(in_b.predicted)}")
    return "\n".join(lines)


def score_lines(scores: list[dict[str, float]], apart: dict[str, Interval]) -> list[str]:
    width = max(map(len, apart))
    lines = [f"  {'':<{width}}{'A':>9}{'B':>9}{'B - A':>9}   95 % interval"]
    for name, gap in apart.items():
        plain = "" if gap.low <= 0 <= gap.high else "   more than chance"
        values = f"{scores[0][name]:9.4f}{scores[1][name]:9.4f}{gap.value:+9.4f}"
        lines.append(f"  {name:<{width}}{values}   {gap.low:+.4f} to {gap.high:+.4f}{plain}")
    return lines


def changes(pair: list[Outcomes], shown: list[list[Shown]]) -> tuple[list[int], list[int], list[int]]:
    """Return the indices of three sorts of examples: only b is right, only a is right, both are wrong but differ."""
    if not all(shown):  # nothing is right or wrong
        return [], [], []
    a, b = (np.array([example.right for example in side]) for side in shown)
    differ = np.array([x != y for x, y in zip(*(given.predicted for given in pair), strict=True)])
    better, worse, other = (np.flatnonzero(which).tolist() for which in (~a & b, a & ~b, ~a & ~b & differ))
    return better, worse, other
