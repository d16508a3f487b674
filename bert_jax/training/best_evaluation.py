"""Find the best of a run's evaluations, which decides the model that the run keeps."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from bert_jax.training.log import read_metrics, validation_lines

KEPT_MODEL_LINE = (
    "kept"  # kind of the line that names the step of the model, if it is not the best evaluation's
)
RankKey = tuple[float, float]


def lower_is_better(metric: str) -> bool:
    return metric.endswith(("loss", "perplexity", "error"))


def rank_key(metric: str, measured: Mapping[str, float]) -> RankKey:
    """The key to compare evaluations by: the greatest is the best. Equal metrics are decided by the losses."""
    value = measured[metric]
    losses = sum(value for name, value in measured.items() if name.endswith("_loss"))
    return (-value if lower_is_better(metric) else value), -losses


def best_step(standings: Iterable[tuple[int, RankKey]]) -> int | None:
    """The step of the best evaluation, the last of equally good ones; None if there are none."""
    return max(standings, key=lambda pair: (pair[1], pair[0]), default=(None,))[0]


def is_out_of_patience(standings: Iterable[tuple[int, RankKey]], patience: int) -> bool:
    """Whether the metric has not improved for `patience` evaluations."""
    history = list(standings)
    first = max(history, key=lambda pair: (pair[1][0], -pair[0]), default=(0, ()))[0]
    return 0 < patience <= sum(step > first for step, _ in history)


def read_kept_metrics(metrics: Path, best: str) -> dict:
    """Return the line that measured the model that a run kept, or {} if there is none.

    It is the line of the step that a KEPT line names; without one, the best line by the metric `best`, or the last line
    if `best` is "".
    """
    lines = {line["step"]: line for line in validation_lines(metrics)}
    kept = [line["step"] for line in read_metrics(metrics) if line["kind"] == KEPT_MODEL_LINE]
    if kept:
        step = kept[-1]
    elif best:
        step = best_step((number, rank_key(best, line)) for number, line in lines.items())
    else:
        step = max(lines, default=None)
    return {} if step is None else lines.get(step, {})
