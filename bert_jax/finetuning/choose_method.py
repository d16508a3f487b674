"""Choose the method that trains the final model: the one with the better predictions for unseen examples.

If there are few examples, all of them are predicted fold by fold, and these predictions also give scores and
calibration. If there are more, only one fold is predicted, and it only serves to choose the method.

Before any fold is predicted, how much more a trained encoder is expected to score than a linear probe on the frozen one
is what other data sets showed. Predictions out of fold move the expectation as far as their standard error allows.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bert_jax.core.terminal import pluralize
from bert_jax.finetuning.cross_validation import Folds
from bert_jax.finetuning.finetune_config import FinetuneConfig, Method
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.metrics.intervals import bootstrap_intervals, difference_intervals
from bert_jax.metrics.score_sums import INFORMATIVE, ScoreSums
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.learning_curve import OutOfFoldPredictions
from bert_jax.training.log import format_duration
from bert_jax.training.processes import print_once

# Numbers of examples of each class, measured with a 6-layer MiniLM. Below CONTRASTIVE_BELOW, contrastive training was
# ahead of fine-tuning at the same rate.
CONTRASTIVE_BELOW = 256
# Pairs whose texts are encoded separately: with 8 and 16 pairs of MRPC fine-tuning (accuracy 0.635, 0.652) was behind
# the probe (0.696, 0.677), and folds of so few pairs do not show it; with 256 it was ahead (0.717, 0.687).
PROBE_BELOW = 64
METHOD_NAMES: dict[Method, str] = {
    "linear_probe": "a linear probe on the frozen encoder",
    "contrastive": "contrastive training and a linear probe",
    "finetune": "fine-tuning",
}

MIN_GAIN = 0.005  # a smaller gain is not worth the larger model directory
MIN_TRIED_GAIN = 0.01  # a method that can hardly gain more is not worth the time of its folds

# The share of the probe's errors that training removes.
# Contrastive training: USUAL_SHARE - SKILL_SHARE x m / √n, for a probe with a Matthews correlation of m and n examples
# per class. Measured (and expected): SST-2 with 8, 16, 64, 256 per class 0.06, 0.01, 0.14, 0.19 (0.11, 0.11, 0.16,
# 0.20); ten emotions 0.15, 0.26, 0.26, 0.26 (0.16, 0.17, 0.19, 0.22); 28 emotions with 8 0.11 (0.19); 48 articles with
# 8 and 24 -0.09, 0.00 (-0.16, 0.01); 50 and 150 articles with 8 -0.52, -0.32 (-0.29, -0.27); 77 intents with 10 -0.15
# (-0.18).
# Fine-tuning, where each text or pair has one class: FINETUNED_SHARE. Measured: SST-2 with 16, 64 0.06, 0.20; ten and
# 28 emotions with 8 0.05, 0.05; 48 articles with 8, 24 0.01, 0.06; 50 and 150 articles with 8 0.05, 0.23; pairs of MRPC
# with 64, 256 0.03 (another draw -0.07), 0.10.
# Otherwise fine-tuning: USUAL_SHARE. Measured: tags of CoNLL-2003 0.20 to 0.32.
USUAL_SHARE, SKILL_SHARE, FINETUNED_SHARE = 0.25, 1.6, 0.07
SHARE_SPREAD = 0.1  # the root mean square of the differences above is 0.08


@dataclass(frozen=True)
class Gain:
    """The expected gain in score, and the standard deviation of what it may be."""

    mean: float
    spread: float
    measured: tuple[float, float] | None = None  # the difference out of fold, and its standard error

    def __str__(self) -> str:
        """
        >>> str(Gain(0.04, 0.03)), str(Gain(0.04, 0.03).given(0.1, 0.03))
        ('+0.040 ± 0.030', '+0.100 ± 0.030 (shrunk by what other data sets showed: +0.070 ± 0.021)')
        """
        expected = f"{self.mean:+.3f} ± {self.spread:.3f}"
        if self.measured is None:
            return expected
        difference, error = self.measured
        return f"{difference:+.3f} ± {error:.3f} (shrunk by what other data sets showed: {expected})"

    @property
    def is_worthwhile(self) -> bool:
        return self.mean > MIN_GAIN

    @property
    def may_be_worthwhile(self) -> bool:
        return self.mean + self.spread > MIN_TRIED_GAIN

    def given(self, difference: float, error: float) -> "Gain":
        """Return the expectation after a difference was measured with a standard error.

        >>> print(f"{Gain(0.04, 0.03).given(-0.02, 0.03).mean:.3f}")
        0.010
        """
        trust = self.spread**2 / (self.spread**2 + error**2)
        mean = self.mean + trust * (difference - self.mean)
        return Gain(mean, error * trust**0.5, measured=(difference, error))


def prior_gain(method: Method, probe: Outcomes, examples: int) -> Gain:
    """Return what other data sets let expect of a method, from the probe's predictions out of fold and the number of
    examples."""
    scores, kind = probe.score_sums.scores, probe.kind
    errors, share = 1 - scores[kind.best_metric], USUAL_SHARE
    if method == "contrastive":
        skill = next(scores[name] for name in INFORMATIVE if name in scores)
        share -= SKILL_SHARE * skill / (examples / len(kind.labels)) ** 0.5
    elif kind.supports_contrastive:
        share = FINETUNED_SHARE
    return Gain(errors * share, errors * SHARE_SPREAD)


def gain_after_folds(prior: Gain, probe: Outcomes, trained: Outcomes) -> Gain:
    """Return the expectation after some or all folds were predicted by both methods."""
    place = {id(example): i for i, example in enumerate(probe.examples)}
    sums, shared = probe.score_sums, [place[id(example)] for example in trained.examples]
    same = ScoreSums(sums.rows[shared], sums.compute_scores)
    measured = difference_intervals(same, trained.score_sums)[probe.kind.best_metric]
    # No error is smaller than one example that may fall otherwise.
    return prior.given(measured.value, max(measured.standard_error, 1 / len(shared)))


@dataclass(frozen=True)
class Trial:
    """What a method predicted out of fold; `gain` is what it gained over a probe and is expected to gain, None for a
    method that is compared with none."""

    outcomes: Outcomes
    gain: Gain | None
    seconds: float

    def describe(self) -> str:
        metric = self.outcomes.kind.best_metric
        score = bootstrap_intervals(self.outcomes.score_sums)[metric]
        gain = f", over the probe {self.gain}" if self.gain else ""
        examples, duration = pluralize(len(self.outcomes.examples), "example"), format_duration(self.seconds)
        return f"{metric} {score.value:.3f} ± {score.standard_error:.3f} on {examples}{gain}, in {duration}"


def choose_method(parts: Folds, workdir: Path) -> OutOfFoldPredictions:
    """Return the method of the final run, with its predictions out of fold."""
    config, examples = parts.config, len(parts.evaluator.examples)
    first, *others = candidate_methods(config, parts.task, examples)
    trials = {first: try_method(parts, first, None, workdir)}
    probe = trials[first].outcomes
    priors = {method: prior_gain(method, probe, examples) for method in others}
    for method in methods_to_try(priors, tries_one_method(parts.task, examples, parts.covers_all)):
        trials[method] = try_method(parts, method, partial(gain_after_folds, priors[method], probe), workdir)
    for method, prior in priors.items():
        if method not in trials:
            print_once(
                f"not tried: {METHOD_NAMES[method]}, whose expected gain over the probe is {prior}; "
                f"--config.method={method} trains the final model by it"
            )
    if config.method == "auto" and first == "linear_probe" and not others:
        print_once(
            f"fewer than {PROBE_BELOW} pairs of each class are too few to train the encoder, so nothing else is tried; "
            "--config.method=finetune trains the encoder"
        )
    best = pick_best({method: trial.gain for method, trial in trials.items()})
    compared = "; ".join(f"{METHOD_NAMES[method]}: {trial.describe()}" for method, trial in trials.items())
    whole = " on all examples" * parts.covers_all
    print_once(f"out of fold, {compared}. The final model is trained{whole} by {METHOD_NAMES[best]}")
    return OutOfFoldPredictions(best, trials[best].outcomes, parts.curve)


def try_method(
    parts: Folds, method: Method, gain_after: Callable[[Outcomes], Gain] | None, workdir: Path
) -> Trial:
    """Predict the folds, but end early if the method can hardly gain enough over the probe any more."""

    def is_hopeless(so_far: Outcomes) -> bool:
        return gain_after is not None and not gain_after(so_far).may_be_worthwhile

    begun, count = time.monotonic(), parts.config.data.folds
    if method == "linear_probe":
        outcomes = parts.predict_with_probes()
    else:
        models = f"{count} fold models" if parts.covers_all else f"the model of one of {count} folds"
        print_once(
            f"training {models} with {METHOD_NAMES[method]}; --config.data.folds=0 trains only the final model"
        )
        outcomes = parts.predict_with_runs(method, workdir, is_hopeless)
    predicted, examples = len(outcomes.examples), len(parts.evaluator.examples)
    scores = ", ".join(f"{name} {value:.4f}" for name, value in outcomes.score_sums.scores.items())
    print_once(f"{predicted:,} of {examples:,} examples out of fold, {METHOD_NAMES[method]}: {scores}")
    if method == "linear_probe" and parts.curve:
        print_once(f"learning curve of the probe: {parts.curve.describe()}")
    return Trial(outcomes, gain_after(outcomes) if gain_after else None, time.monotonic() - begun)


def pick_best(gains: Mapping[Method, Gain | None]) -> Method:
    """Return the method that is expected to gain most over the probe, or the probe if no gain is worthwhile.

    A method that was not compared has no gain.
    """
    compared = {method: gain for method, gain in gains.items() if gain}
    best = max(compared, key=lambda method: compared[method].mean, default=next(iter(gains)))
    return best if best not in compared or compared[best].is_worthwhile else "linear_probe"


def candidate_methods(config: FinetuneConfig, task: HeadTask, examples: int) -> list[Method]:
    """Return the methods that may train the final model; what the first predicts says which others are tried."""
    kind = task.kind
    if config.method != "auto":
        return [config.method]
    if config.head_init == "pretrained" or not kind.link:
        return ["finetune"]
    compares = HEADS[task.head].compares
    if compares and kind.supports_contrastive and examples < PROBE_BELOW * len(kind.labels):
        return ["linear_probe"]
    if not kind.supports_contrastive or compares:
        return ["linear_probe", "finetune"]
    return ["linear_probe", "contrastive", "finetune"]


def tries_one_method(task: HeadTask, examples: int, whole: bool = True) -> bool:
    """Return whether at most one method is tried after the probe: with few examples, whose folds are all predicted."""
    return whole and examples < CONTRASTIVE_BELOW * len(task.kind.labels)


def methods_to_try(priors: Mapping[Method, Gain], only_best: bool) -> list[Method]:
    """Return the methods that may be worth their folds; only the most promising of them if `only_best`.

    >>> methods_to_try({"contrastive": Gain(0.05, 0.02), "finetune": Gain(0.03, 0.02)}, only_best=True)
    ['contrastive']
    """
    worth_it = [method for method, gain in priors.items() if gain.may_be_worthwhile]
    return sorted(worth_it, key=lambda method: -priors[method].mean)[: 1 if only_best else None]


def describe_compared(count: int, methods: Sequence[Method], only_best: bool) -> str:
    """Describe the methods whose models predict `count` folds; at most one after the first if `only_best`.

    >>> describe_compared(5, ["linear_probe"], only_best=True)
    '5, predicted by a linear probe on the frozen encoder'
    >>> describe_compared(1, ["linear_probe", "finetune"], only_best=False)
    '1, predicted by a linear probe on the frozen encoder; if it may pay, also by fine-tuning'
    """
    first, *others = (METHOD_NAMES[method] for method in methods)
    also = (" or " if only_best else " and by ").join(others)
    return f"{count}, predicted by {first}" + f"; if it may pay, also by {also}" * bool(others)
