"""Score a model directory on labelled texts: the verb `evaluate`.

The model's head, and for a classifier its problem_type, decide which metrics are computed.
"""

from dataclasses import asdict, dataclass, field

from bert_jax.core.files import to_json
from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.inference.model import Model, load
from bert_jax.inference.outcomes import outcomes, read
from bert_jax.predictions.kind import Outcomes
from bert_jax.report import out_of_scope_detection
from bert_jax.report.out_of_scope_detection import Foreign, OutOfScope


@dataclass(frozen=True)
class Trial:
    """The data that a model is scored on, and how to read it."""

    data: str
    columns: Columns = EVIDENT
    long: str = "cut"
    foreign: str = ""  # a file of texts that the model should refuse


@dataclass
class Scored:
    """The task that was scored, its metrics, and notes for whoever reads them."""

    task: str
    examples: int
    metrics: dict[str, float] = field(default_factory=dict)
    by_kind: dict[str, dict[str, float]] = field(default_factory=dict)  # scores of each kind of tagged span
    notes: list[str] = field(default_factory=list)
    out_of_scope: OutOfScope | None = None


def in_lines(scored: Scored, directory, data: str, as_json: bool = False) -> str:
    if as_json:
        facts = asdict(scored)
        if scored.out_of_scope is None:
            del facts["out_of_scope"]
        return to_json({"model": str(directory), "data": data} | facts)
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
    if scored.out_of_scope:
        lines += out_of_scope_detection.in_lines(scored.out_of_scope)
    return "\n".join(lines)


def evaluate(model: Model, data: str, columns: Columns = EVIDENT, long: str = "cut") -> Scored:
    return score(outcomes(model, *read(model, data, columns), long))


def score(given: Outcomes, compared: Foreign | None = None) -> Scored:
    parts = given.kind.by_name(given.predicted, given.truth)
    out_of_scope = compared.scores if compared else None
    return Scored(
        given.kind.title, len(given.examples), given.sums.scores, parts, list(given.notes), out_of_scope
    )


def measure(model: Model, trial: Trial) -> tuple[Outcomes, Foreign | None]:
    examples, known = read(model, trial.data, trial.columns)
    unknown = out_of_scope_detection.read(model, trial.foreign, trial.columns) if trial.foreign else []
    given = outcomes(model, examples, known, trial.long, bool(unknown))
    return given, out_of_scope_detection.compared(model, given, unknown, trial.long) if unknown else None


def describe(directory, trial: Trial, as_json: bool = False) -> str:
    given, compared = measure(load(directory), trial)
    return in_lines(score(given, compared), directory, trial.data, as_json)
