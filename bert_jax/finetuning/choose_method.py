"""Choose the method that trains the final model: the one with the better predictions for unseen examples.

If there are few examples, all of them are predicted fold by fold, and these predictions also give scores and
calibration. If there are more, only one fold is predicted, and it only serves to choose the method.
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
from bert_jax.finetuning.training_gain import Gain, gain_after_folds, prior_gain
from bert_jax.metrics.intervals import bootstrap_intervals
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
