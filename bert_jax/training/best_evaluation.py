"""Find the best of a run's evaluations, which decides the model that the run keeps."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.training.log import read_metrics, validation_lines

# Kind of the line about the model, if it is not the best evaluation's: it names another step, or has its own metrics.
KEPT_MODEL_LINE = "kept"
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


def describe_kept(
    metric: str, standings: Sequence[tuple[int, RankKey]], first: int, verb: str = "kept"
) -> str:
    """Say what training did to the metric, and which step's model is kept; `first` is the step of the start.

    >>> describe_kept("spearman", [(0, (0.867, -1.0)), (12, (0.85, -1.1)), (24, (0.816, -1.2))], 0)
    'spearman 0.867 before training, 0.816 at step 24; kept: the model before training'
    >>> describe_kept("mlm_loss", [(0, (-2.5, -2.5)), (12, (-2.25, -2.25)), (24, (-2.3, -2.3))], 0)
    'mlm_loss 2.5 before training, 2.25 at step 12, 2.3 at step 24; kept: the model of step 12'
    """
    kept, sign = best_step(standings), -1 if lower_is_better(metric) else 1
    names = {step: "before training" if step == first else f"at step {step:,}" for step, _ in standings}
    told = (standings[0][0], kept, standings[-1][0])
    values = [f"{sign * key[0]:.4g} {names[step]}" for step, key in standings if step in told]
    model = "the model before training" if kept == first else f"the model of step {kept:,}"
    return f"{metric} {', '.join(values)}; {verb}: {model}"


def is_out_of_patience(standings: Iterable[tuple[int, RankKey]], patience: int) -> bool:
    """Whether the metric has not improved for `patience` evaluations."""
    history = list(standings)
    first = max(history, key=lambda pair: (pair[1][0], -pair[0]), default=(0, ()))[0]
    return 0 < patience <= sum(step > first for step, _ in history)


class EvaluationHistory:
    """The standing of each evaluation of a run by the metric that decides which model it keeps; "": no evaluation has
    one."""

    def __init__(self, metric: str, patience: int):
        self.metric, self.patience = metric, patience
        self.standings: list[tuple[int, RankKey]] = []

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        if not self.metric:
            return
        if self.metric not in metrics:
            raise BertJaxError(
                f'config key checkpoints.best_metric: no validation metric "{self.metric}"; '
                f"{suggest_name(self.metric, metrics)}"
            )
        self.standings.append((step, rank_key(self.metric, metrics)))

    def drop(self, step: int) -> None:
        self.standings = [(other, key) for other, key in self.standings if other != step]

    def best_step(self) -> int | None:
        return best_step(self.standings)

    def is_out_of_patience(self) -> bool:
        return is_out_of_patience(self.standings, self.patience)


def read_kept_metrics(metrics: Path, best: str) -> dict:
    """Return the line that measured the model that a run kept, or {} if there is none.

    It is the last KEPT line if that has metrics, else the line of the step that it names; without one, the best line by
    the metric `best`, or the last line if `best` is "".
    """
    lines = {line["step"]: line for line in validation_lines(metrics)}
    kept = [line for line in read_metrics(metrics) if line["kind"] == KEPT_MODEL_LINE]
    if kept and best in kept[-1]:
        return kept[-1]
    if kept:
        step = kept[-1]["step"]
    elif best:
        step = best_step((number, rank_key(best, line)) for number, line in lines.items())
    else:
        step = max(lines, default=None)
    return {} if step is None else lines.get(step, {})
