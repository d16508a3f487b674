"""How well a model directory does on labelled texts: what the verb `evaluate` runs.

The directory tells what is scored: its head, and for a classifier its problem_type.
"""

from dataclasses import asdict, dataclass, field

from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.files import to_json
from bert_jax.inference.model import Model, load
from bert_jax.inference.outcomes import outcomes, read
from bert_jax.predictions.kind import Outcomes


@dataclass
class Scored:
    """What was scored, its metrics, and what a reader of them should know."""

    task: str
    examples: int
    metrics: dict[str, float] = field(default_factory=dict)
    by_kind: dict[str, dict[str, float]] = field(default_factory=dict)  # of tagged spans
    notes: list[str] = field(default_factory=list)


def in_lines(scored: Scored, directory, data: str, as_json: bool = False) -> str:
    if as_json:
        return to_json({"model": str(directory), "data": data} | asdict(scored))
    lines = [f"{directory} on {scored.examples:,} examples of {data}: {scored.task}", *scored.notes]
    width = max(map(len, scored.metrics))
    lines += [f"  {name:<{width}}  {value:.4f}" for name, value in scored.metrics.items()]
    if scored.by_kind:
        width = max(map(len, scored.by_kind))
        header = "".join(f"{name:>11}" for name in next(iter(scored.by_kind.values())))
        lines.append(f"  {'':<{width}}  {header}")
        for name, scores in scored.by_kind.items():
            values = (f"{x:11.4f}" if isinstance(x, float) else f"{x:>11,}" for x in scores.values())
            lines.append(f"  {name:<{width}}  {''.join(values)}")
    return "\n".join(lines)


def evaluate(model: Model, data: str, columns: Columns = EVIDENT, long: str = "cut") -> Scored:
    return score(outcomes(model, *read(model, data, columns), long))


def score(given: Outcomes) -> Scored:
    parts = given.kind.by_name(given.predicted, given.truth)
    return Scored(given.kind.title, len(given.examples), given.sums.scores, parts, list(given.notes))


def describe(
    directory, data: str, columns: Columns = EVIDENT, long: str = "cut", as_json: bool = False
) -> str:
    return in_lines(evaluate(load(directory), data, columns, long), directory, data, as_json)
