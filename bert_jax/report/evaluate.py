"""How well a model directory does on labelled texts: what the verb `evaluate` runs.

The directory says what is scored: its head, and for a classifier its problem_type.
"""

import json
from dataclasses import asdict, dataclass, field

from bert_jax import metrics
from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.inference.model import Model, load
from bert_jax.inference.outcomes import Outcomes, outcomes, read, said, scored, true


@dataclass
class Scored:
    """The outcome: what was scored, its metrics, and what a reader of them should know."""

    task: str
    examples: int
    metrics: dict[str, float] = field(default_factory=dict)
    by_kind: dict[str, dict[str, float]] = field(default_factory=dict)  # of tagged spans
    notes: list[str] = field(default_factory=list)


def report(directory, data: str, columns: Columns = EVIDENT, long: str = "cut", as_json: bool = False) -> str:
    return in_lines(evaluate(load(directory), data, columns, long), directory, data, as_json)


def in_lines(scored: Scored, directory, data: str, as_json: bool = False) -> str:
    if as_json:
        return json.dumps({"model": str(directory), "data": data} | asdict(scored), ensure_ascii=False)
    lines = [f"{directory} on {scored.examples:,} examples of {data}: {scored.task}", *scored.notes]
    width = max(map(len, scored.metrics))
    lines += [f"  {name:<{width}}  {value:.4f}" for name, value in scored.metrics.items()]
    if scored.by_kind:
        width = max(map(len, scored.by_kind))
        lines += [
            f"  {'':<{width}}  " + "".join(f"{name:>11}" for name in ("f1", "precision", "recall", "spans"))
        ]
        for kind, found in scored.by_kind.items():
            shares = "".join(f"{found[name]:11.4f}" for name in ("f1", "precision", "recall"))
            lines.append(f"  {kind:<{width}}  {shares}{found['spans']:>11,}")
    return "\n".join(lines)


def evaluate(model: Model, data: str, columns: Columns = EVIDENT, long: str = "cut") -> Scored:
    return of_outcomes(outcomes(model, *read(model, data, columns), long), model)


def of_outcomes(given: Outcomes, model: Model) -> Scored:
    task = {"tags": "tag", "answers": "answer"}.get(given.kind, f"classify ({given.kind})")
    found = Scored(task, len(given.examples), scored(given, model.calibration), notes=list(given.notes))
    if given.kind == "classes" and "f1" in found.metrics:
        found.notes.append(f'f1 is that of "{given.order[1]}"')
    if given.kind == "tags":
        counts = metrics.span_counts(said(given, model.calibration), true(given))
        found.by_kind = {kind: of_counts(*three) for kind, three in counts.items()}
    return found


def of_counts(right: int, said: int, true: int) -> dict[str, float]:
    return {
        "f1": metrics.f1(right, said, true),
        "precision": metrics.ratio(right, said),
        "recall": metrics.ratio(right, true),
        "spans": true,
    }
