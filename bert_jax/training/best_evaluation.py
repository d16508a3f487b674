"""Find the best of a run's evaluations, which decides the model that the run keeps."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from bert_jax.training.log import heldout, read

KEPT = "kept"  # kind of the line that names the step of the model, if it is not the best evaluation's
Standing = tuple[float, float]


def lower_is_better(metric: str) -> bool:
    return metric.endswith(("loss", "perplexity", "error"))


def standing(metric: str, measured: Mapping[str, float]) -> Standing:
    """The key to compare evaluations by: the greatest is the best. Equal metrics are decided by the losses."""
    value = measured[metric]
    losses = sum(value for name, value in measured.items() if name.endswith("_loss"))
    return (-value if lower_is_better(metric) else value), -losses


def best_step(standings: Iterable[tuple[int, Standing]]) -> int | None:
    """The step of the best evaluation, the last of equally good ones; None if there are none."""
    return max(standings, key=lambda pair: (pair[1], pair[0]), default=(None,))[0]


def of_kept_model(metrics: Path, best: str) -> dict:
    """Return the line that measured the model that a run kept, or {} if there is none.

    It is the line of the step that a KEPT line names; without one, the best line by the metric `best`, or the last line
    if `best` is "".
    """
    lines = {line["step"]: line for line in heldout(metrics)}
    kept = [line["step"] for line in read(metrics) if line["kind"] == KEPT]
    if kept:
        step = kept[-1]
    elif best:
        step = best_step((number, standing(best, line)) for number, line in lines.items())
    else:
        step = max(lines, default=None)
    return {} if step is None else lines.get(step, {})
