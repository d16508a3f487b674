"""Choose the method that trains the final model: the one with the better predictions for unseen examples.

If there are few examples, all of them are predicted fold by fold, and these predictions also give scores and
calibration. If there are more, only one fold is predicted, and it only serves to choose the method.

The folds of the probe come first, within seconds. Then the other methods predict them, one after the other, as long as
a method may be the best and the minutes of the run suffice.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bert_jax.finetuning.cross_validation import FoldRuns, Folds
from bert_jax.finetuning.finetune_config import FinetuneConfig, Method
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.metrics.intervals import Interval, bootstrap_intervals, difference_intervals
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.learning_curve import OutOfFoldPredictions
from bert_jax.training.log import format_duration
from bert_jax.training.processes import print_once

METHOD_NAMES: dict[Method, str] = {
    "linear_probe": "a linear probe on the frozen encoder",
    "contrastive": "contrastive training and a linear probe",
    "finetune": "fine-tuning",
}
MIN_GAIN = 0.005  # a smaller gain is not worth the larger model directory
# What is believed before the first fold: the share of the probe's errors that a method removes, and its standard
# deviation. Where examples are few, their folds tell little, and it decides; more of them outweigh it. A head that
# compares the vectors of two texts learns less than a probe from a few dozen pairs.
USUAL_SHARES: dict[Method, float] = {"contrastive": 0.2, "finetune": 0.1}
SHARE_OF_PAIRS, SHARE_SPREAD = -0.1, 0.2
LEAST_SPREAD = 0.05  # where the probe has few errors, a method may still make many


@dataclass(frozen=True)
class Gain:
    """What a method may gain in score over a probe: its mean and its standard deviation."""

    mean: float
    spread: float
    measured: Interval | None = None  # the difference out of fold

    def given(self, difference: Interval, error: float) -> "Gain":
        """Return the gain after a difference was measured with a standard error.

        >>> print(f"{Gain(0.04, 0.03).given(Interval(-0.02, -0.08, 0.04), 0.03).mean:.3f}")
        0.010
        """
        trust = self.spread**2 / (self.spread**2 + error**2)
        mean = self.mean + trust * (difference.value - self.mean)
        return Gain(mean, error * trust**0.5, difference)


def usual_gain(method: Method, probe: Outcomes, compares: bool) -> Gain:
    """Return what is believed before any fold is predicted by another method than the probe."""
    count = len(probe.examples)
    # One of two more examples is taken to be wrong: a probe that has all of a few right is not perfect.
    errors = 1 - (probe.score_sums.scores[probe.kind.best_metric] * count + 1) / (count + 2)
    share = SHARE_OF_PAIRS if compares else USUAL_SHARES[method]
    return Gain(errors * share, max(errors * SHARE_SPREAD, LEAST_SPREAD))


def gain_after_folds(usual: Gain, probe: Outcomes, trained: Outcomes, learnt: float) -> Gain:
    """Return what is believed after some or all folds were predicted by both methods, whose models learn from `learnt`
    examples.

    Models of folds learn from much the same examples. With others the difference would vary more than resampling tells:
    by Nadeau and Bengio's correction its variance is 1 + predicted / learnt times as large, of all five folds 2.25.
    """
    index = {id(example): i for i, example in enumerate(probe.examples)}
    sums, shared = probe.score_sums, [index[id(example)] for example in trained.examples]
    same = ScoreSums(sums.rows[shared], sums.compute_scores)
    measured = difference_intervals(same, trained.score_sums)[probe.kind.best_metric]
    # No error is smaller than one example that may fall otherwise.
    error = max(measured.standard_error, 1 / len(shared))
    return usual.given(measured, error * (1 + len(shared) / learnt) ** 0.5)


class Candidate(Protocol):
    """A method whose models may predict the folds."""

    seconds: list[float]  # that each fold took

    @property
    def next_seconds(self) -> float: ...

    @property
    def spent_seconds(self) -> float: ...


C = TypeVar("C", bound=Candidate)


def affordable_folds(
    candidates: Sequence[C],
    budget: float,
    folds: int,
    used: float = 0.0,
    may_win: Callable[[C], bool] = lambda candidate: True,
    at_least: int = 0,
) -> Iterator[C]:
    """Yield, for each fold, the candidate that predicts it, while `budget` seconds suffice for that and for the final
    model, and for the first `at_least` folds in any case.

    A candidate predicts all its folds before the next one begins, unless it cannot win any more: one fold of few
    examples tells too little to change over.

    >>> from types import SimpleNamespace as Method
    >>> methods = [Method(next_seconds=seconds, spent_seconds=0, seconds=[]) for seconds in (20, 35)]
    >>> for method in affordable_folds(methods, budget=190, folds=3):
    ...     method.seconds.append(method.next_seconds)
    ...     method.spent_seconds += method.next_seconds
    >>> [method.seconds for method in methods]
    [[20, 20, 20], [35, 35]]
    """
    left = list(candidates)
    while left := [other for other in left if len(other.seconds) < folds and may_win(other)]:
        candidate = left[0]
        tried = [other for other in candidates if other is candidate or other.seconds]
        final = max(other.next_seconds for other in tried)
        spent = used + sum(other.spent_seconds for other in tried)
        if len(candidate.seconds) < at_least or spent + candidate.next_seconds + final <= budget:
            yield candidate
        else:
            left.remove(candidate)


def choose_method(parts: Folds, workdir: Path) -> tuple[Method, OutOfFoldPredictions | None]:
    """Return the method of the final run, with its predictions for all or some examples if folds give scores."""
    config, task = parts.config, parts.task
    budget = config.budget_seconds(len(parts.evaluator.examples), task.layout.config)
    first, *others = candidate_methods(config, task)
    begun, probe, outcomes = time.monotonic(), None, dict[Method, Outcomes]()
    if first == "linear_probe":
        probe = outcomes[first] = parts.predict_with_probes(workdir if others else None)
        print_method_scores(parts, first, probe)
        if parts.curve:
            print_once(f"learning curve of the probe: {parts.curve.describe()}")
    runs_by_method = {method: FoldRuns(parts, method, workdir) for method in (others if probe else [first])}
    gains = dict[Method, Gain]()

    def may_win(fold_runs: FoldRuns) -> bool:
        """Return whether a method may gain more than the best so far, at the upper end of what is believed."""
        if probe is None:
            return True
        gain = gains.get(fold_runs.method) or usual_gain(fold_runs.method, probe, HEADS[task.head].compares)
        return gain.mean + gain.spread >= max([MIN_GAIN, *(other.mean for other in gains.values())])

    spent, learnt = time.monotonic() - begun, len(parts.evaluator.examples) * (1 - 1 / config.data.folds)
    at_least = 0 if probe else 1  # or there would be no scores
    for fold_runs in affordable_folds(
        list(runs_by_method.values()), budget, len(parts.predicted), spent, may_win, at_least
    ):
        method = fold_runs.method
        if method not in outcomes:
            print_once(describe_start(fold_runs, parts))
        fold_runs.predict_next()
        outcomes[method] = fold_runs.outcomes
        if probe:
            usual = usual_gain(method, probe, HEADS[task.head].compares)
            gains[method] = gain_after_folds(usual, probe, outcomes[method], learnt)
    for method, fold_runs in runs_by_method.items():
        if method in outcomes:
            print_method_scores(parts, method, outcomes[method], gains.get(method), fold_runs.spent_seconds)
        if len(fold_runs.seconds) < len(parts.predicted) and may_win(fold_runs):
            print_once(describe_left_out(fold_runs, len(parts.predicted), budget))
    best = pick_best(gains) if probe else first
    whole = " on all examples" * parts.covers_all
    print_once(f"the final model is trained{whole} by {METHOD_NAMES[best]}{explain_choice(gains.get(best))}")
    if best not in outcomes or not parts.covers_all:
        return best, None
    return best, OutOfFoldPredictions(best, outcomes[best], parts.curve)


def pick_best(gains: Mapping[Method, Gain]) -> Method:
    """Return the method that is expected to gain most over the probe, or the probe if no gain is worthwhile.

    >>> pick_best({"contrastive": Gain(0.02, 0.1), "finetune": Gain(0.01, 0.1)}), pick_best({})
    ('contrastive', 'linear_probe')
    """
    best = max(gains, key=lambda method: gains[method].mean, default=None)
    return best if best and gains[best].mean > MIN_GAIN else "linear_probe"


def explain_choice(gain: Gain | None) -> str:
    """Say why a method is taken that was not better out of fold.

    >>> explain_choice(Gain(0.02, 0.03, Interval(-0.04, -0.12, 0.04)))
    ': a difference of -0.040 on so few examples may be chance, and it usually gains'
    """
    if not gain or not gain.measured or gain.measured.value > 0:
        return ""
    return (
        f": a difference of {gain.measured.value:+.3f} on so few examples may be chance, and it usually gains"
    )


def print_method_scores(
    parts: Folds, method: Method, outcomes: Outcomes, gain: Gain | None = None, seconds: float = 0.0
) -> None:
    """Print what a method reaches out of fold, and what it gains over the probe."""
    predicted, examples = len(outcomes.examples), len(parts.evaluator.examples)
    scores = ", ".join(f"{name} {value:.4f}" for name, value in outcomes.score_sums.scores.items())
    best = bootstrap_intervals(outcomes.score_sums)[outcomes.kind.best_metric]
    words = f"{predicted:,} of {examples:,} examples out of fold, {METHOD_NAMES[method]}: {scores}"
    words += f" (95% interval of {outcomes.kind.best_metric} {best.low:.3f} to {best.high:.3f})"
    if gain and (measured := gain.measured):
        words += (
            f"; {measured.value:+.3f} over the probe on the same examples, 95% interval {measured.low:+.3f} to "
            f"{measured.high:+.3f}"
        )
    print_once(words + f", in {format_duration(seconds)}" * bool(seconds))


def describe_start(fold_runs: FoldRuns, parts: Folds) -> str:
    """Say that the first of the models of folds is trained."""
    count = parts.config.data.folds
    models = f"up to {count} fold models" if parts.covers_all else f"the model of one of {count} folds"
    return (
        f"training {models} with {METHOD_NAMES[fold_runs.method]}, each in about "
        f"{format_duration(max(fold_runs.next_seconds, 1))}; --config.data.folds=0 trains only the final model"
    )


def describe_left_out(fold_runs: FoldRuns, folds: int, budget: float) -> str:
    """Say what the minutes of the run did not suffice for."""
    done, name = len(fold_runs.seconds), METHOD_NAMES[fold_runs.method]
    what = f"{name} predicted {done} of {folds} folds" if done else f"{name} is not tried"
    seconds = fold_runs.next_seconds
    takes = "would take long" if math.isinf(seconds) else f"takes about {format_duration(max(seconds, 1))}"
    return (
        f"{what}: one of its models {takes}, and the run has {format_duration(budget)} to choose and to train; "
        "--config.minutes=M gives it M minutes"
    )


def candidate_methods(config: FinetuneConfig, task: HeadTask) -> list[Method]:
    """Return the methods that may train the final model, the probe first, then the usual winner."""
    if config.method != "auto":
        return [config.method]
    if config.head_init == "pretrained" or not task.kind.link:
        return ["finetune"]
    if not task.kind.supports_contrastive or HEADS[task.head].compares:
        return ["linear_probe", "finetune"]
    return ["linear_probe", "contrastive", "finetune"]


def describe_compared(count: int, methods: Sequence[Method]) -> str:
    """Describe the methods whose models predict `count` folds.

    >>> describe_compared(5, ["linear_probe"])
    '5, predicted by a linear probe on the frozen encoder'
    >>> describe_compared(1, ["linear_probe", "finetune"])
    '1, predicted by a linear probe on the frozen encoder; as far as time allows, also by fine-tuning'
    """
    first, *others = (METHOD_NAMES[method] for method in methods)
    also = " and by ".join(others)
    return f"{count}, predicted by {first}" + f"; as far as time allows, also by {also}" * bool(others)
