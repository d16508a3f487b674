"""`bert-jax bench quality`: compare models that have the same labels by score and by speed.

Each model predicts the labelled examples of a file; its time includes tokenizing. The models take turns, each in its
own process.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path

import jax
import numpy as np

from bert_jax.bench.turns import Limits, Machine, Ratio, Turn, compared, contending, describe, ratio
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.output import destination
from bert_jax.inference.model import load
from bert_jax.inference.outcomes import outcomes, read
from bert_jax.metrics.sums import Sums
from bert_jax.report.intervals import Interval, differences, intervals
from bert_jax.report.plots import ACCENT, INK, drawn
from bert_jax.report.prediction_page import table


@dataclass(frozen=True)
class Quality:
    """The figures of a model. `speed` is how many times as long the first model takes."""

    model: str
    parameters: int
    score: Interval
    difference: Interval | None  # its score minus that of the first model; None for the first
    texts_per_second: float
    speed: Ratio


def compare(
    models: Sequence[str], data: str, limits: Limits, picture: str | None = None, as_json: bool = False
) -> str:
    if repeated := [model for model in models if models.count(model) > 1]:
        raise BertJaxError(f"{repeated[0]} is named twice; name each model once")
    best, count, parameters, scored = scores(models, data)
    machine, taken = Machine(), {model: list[Turn]() for model in models}
    with contending({model: (reader, model, data) for model in models}) as contenders:
        for contender in contenders.values():
            contender()  # compiles
        for model, _, turn in compared(contenders, repeat(()), limits, lambda _, turn: turn.seconds):
            taken[model].append(turn)
    seconds = {model: [turn.seconds for turn in turns] for model, turns in taken.items()}
    first = models[0]
    results = [
        Quality(
            model, parameters[model], intervals(scored[model])[best],
            None if model == first else differences(scored[first], scored[model])[best],
            count / float(np.median(seconds[model])), ratio(seconds[model], seconds[first]),
        )
        for model in models
    ]  # fmt: skip
    if picture:
        draw(results, best, Path(picture))
    load_during = machine.during(turn for turns in taken.values() for turn in turns)
    if as_json:
        return to_json(
            {"data": data, "score": best, "machine": load_during, "models": [asdict(r) for r in results]}
        )
    device = jax.devices()[0].device_kind
    return "\n".join(
        [f"{count:,} examples of {data} on {device}", *in_lines(results, best), "", describe(load_during)]
    )


def scores(models: Sequence[str], data: str) -> tuple[str, int, dict[str, int], dict[str, Sums]]:
    """Return the score's name, the number of examples, and each model's number of parameters and sums of its scores."""
    kinds, parameters, scored, count = {}, {}, {}, 0
    for directory in models:
        model = load(directory)
        given = outcomes(model, *read(model, data))
        kinds[directory], scored[directory] = given.kind, given.sums
        count = len(given.examples)
        parameters[directory] = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    first = kinds[models[0]]
    for directory, kind in kinds.items():
        if kind.name != first.name or sorted(kind.labels) != sorted(first.labels):
            raise BertJaxError(
                f"{directory} ({kind.name}) and {models[0]} ({first.name}) differ in kind or in labels; "
                "compare models that have the same labels"
            )
    return first.best, count, parameters, scored


def reader(directory: str, data: str) -> Callable:
    """Read the file, and return a function that predicts all of its examples from their texts."""
    model = load(directory)
    texts = [example.text for example in read(model, data)[0]]

    def run() -> None:
        model.outcomes(model.kind, texts)

    return run


def in_lines(results: Sequence[Quality], best: str) -> list[str]:
    header = (
        "model",
        "parameters",
        best,
        "95% interval",
        "relative to the first",
        "examples/s",
        "times as fast",
    )
    rows = [
        (r.model, r.parameters, r.score.value, f"{r.score.low:.4f} to {r.score.high:.4f}",
         f"{r.score.value / results[0].score.value:.1%}" if results[0].score.value else "", round(r.texts_per_second),
         str(r.speed) if r.difference else "1")
        for r in results
    ]  # fmt: skip
    lines = table(header, rows)
    for r in results:
        if r.difference:
            gap = f"{r.difference.value:+.4f} ({r.difference.low:+.4f} to {r.difference.high:+.4f})"
            lines += ["", f"{r.model} - {results[0].model}: {best} {gap}"]
    return lines


def draw(results: Sequence[Quality], best: str, path: Path) -> None:
    """Plot score against speed: up and to the right is better."""

    def points(axes):
        for r in results:
            x, score = r.texts_per_second, r.score
            axes.plot([x, x], [score.low, score.high], color=ACCENT, linewidth=5, alpha=0.35)
            axes.plot(x, score.value, "o", color=INK, markersize=5)
            axes.annotate(name_of(r.model), (x, score.value), (8, 0), textcoords="offset points", fontsize=8,
                          va="center")  # fmt: skip
        axes.set_xlim(0, 1.35 * max(r.texts_per_second for r in results))
        axes.set_xlabel("examples per second, including tokenization", fontsize=9)
        axes.set_ylabel(f"{best.replace('_', ' ')} with its 95% interval", fontsize=9)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)

    drawn(destination(path), (6.5, 4), points)


def name_of(directory: str) -> str:
    """Return the name of the directory or, if this is model/, of the run that holds it.

    >>> name_of("runs/small/model"), name_of("small")
    ('small', 'small')
    """
    path = Path(directory)
    return path.parent.name if path.name == "model" and path.parent.name else path.name
