"""Two models on the same examples: how far their scores lie apart, and which examples changed."""

import json
from dataclasses import asdict

import numpy as np

from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.errors import BertJaxError
from bert_jax.inference.model import load
from bert_jax.inference.outcomes import outcomes, read, said, true
from bert_jax.report.evaluate import of_outcomes
from bert_jax.report.intervals import differences
from bert_jax.report.page import cut
from bert_jax.report.views import in_words

CHANGED = 10  # shown of each kind


def compare(a, b, data: str, columns: Columns = EVIDENT, long: str = "cut", as_json: bool = False) -> str:
    models = [load(directory) for directory in (a, b)]
    examples, known = read(models[0], data, columns)
    pair = [(outcomes(model, examples, known, long), model.calibration) for model in models]
    first, second = (given for given, _ in pair)
    if first.kind != second.kind or sorted(first.labels) != sorted(second.labels):
        raise BertJaxError(
            f"{a} gives {first.kind} ({', '.join(first.labels[:6]) or 'no labels'}) and {b} {second.kind} "
            f"({', '.join(second.labels[:6]) or 'no labels'}); only models of the same labels are compared"
        )
    scores = [of_outcomes(given, model).metrics for (given, _), model in zip(pair, models, strict=True)]
    apart = differences(pair[0], pair[1])
    better, worse, other = changes(pair[0], pair[1])
    if as_json:
        whole = {
            "models": [str(a), str(b)],
            "data": data,
            "scores": scores,
            "differences": {name: asdict(one) for name, one in apart.items()},
            "better": better,
            "worse": worse,
            "otherwise": other,
        }
        return json.dumps(whole, ensure_ascii=False)
    width = max(map(len, apart))
    lines = [f"A {a}, B {b}, on {len(examples):,} examples of {data}"]
    lines += [f"  {'':<{width}}{'A':>9}{'B':>9}{'B - A':>9}   95 % interval"]
    for name, one in apart.items():
        plain = "" if one.low <= 0 <= one.high else "   more than chance"
        values = f"{scores[0][name]:9.4f}{scores[1][name]:9.4f}{one.value:+9.4f}"
        lines.append(f"  {name:<{width}}{values}   {one.low:+.4f} to {one.high:+.4f}{plain}")
    if first.kind == "number":
        return "\n".join(lines)
    lines.append(
        f"{len(better)} examples are right by B alone, {len(worse)} by A alone, {len(other)} wrong in another way"
    )
    words = [in_words_of(given, calibration) for given, calibration in pair]
    for name, places in (("right by B alone", better), ("right by A alone", worse)):
        for i in places[:CHANGED]:
            text, truth, found = words[0][i]
            lines.append(f"  {name}: {examples[i].where}: {cut(text)}")
            lines.append(f"    true {cut(truth)} | A {cut(found)} | B {cut(words[1][i][2])}")
    return "\n".join(lines)


def changes(a, b) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the examples that only b has right, only a, and both wrong but each in its way."""
    truth, found = true(a[0]), [said(*one) for one in (a, b)]
    if a[0].kind == "number":
        return [], [], []
    right = np.array([[is_right(f, t) for f, t in zip(each, truth, strict=True)] for each in found])
    differ = np.array([x != y for x, y in zip(*found, strict=True)])
    sets = (~right[0] & right[1], right[0] & ~right[1], ~right[0] & ~right[1] & differ)
    better, worse, other = (np.flatnonzero(one).tolist() for one in sets)
    return better, worse, other


def is_right(found, truth) -> bool:
    # Of answers `truth` is all that are right.
    return (found in truth or found == "" and not truth) if isinstance(truth, tuple) else found == truth


def in_words_of(given, calibration) -> list[tuple[str, str, str]]:
    rows = zip(given.examples, true(given), said(given, calibration), strict=True)
    return [in_words(given.kind, *row) for row in rows]
