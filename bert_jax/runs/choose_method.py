"""Choose the method that trains the final model: the one with the better predictions for unseen examples.

If there are few examples, all of them are predicted fold by fold, and these predictions also give scores and
calibration. If there are more, only one fold is predicted, and it only serves to choose the method.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import jax

from bert_jax import tasks
from bert_jax.finetuning.example_splits import FOLDS
from bert_jax.finetuning.finetune_config import FinetuneConfig, Method
from bert_jax.finetuning.finetune_task import Finetuning
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import Outcomes
from bert_jax.report.finish_run import OutOfFold
from bert_jax.report.intervals import differences
from bert_jax.runs.cross_validation import Folds
from bert_jax.training.best_evaluation import standing
from bert_jax.training.processes import print_once

CONTRAST_BELOW = 256  # examples of each class: with fewer, contrast was ahead of fine-tuning at the same rate
# Examples of each class: with 256 and 512 of ten emotions contrast was three points ahead of fine-tuning, with 1,200 of
# SST-2's two classes two points behind.
ONE_FOLD_BELOW = 1_000
ONE_FOLD_FROM = 1_000  # examples: with fewer, one fold would choose by chance
# Pairs of each class, if the texts of a pair are encoded separately: with 8 and 16 pairs of MRPC fine-tuning (accuracy
# 0.635, 0.652) was behind the probe (0.696, 0.677), and folds of so few pairs do not show it; with 256 it was ahead
# (0.717, 0.687).
PROBE_BELOW = 64
IN_WORDS: dict[Method, str] = {
    "probe": "a probe of the frozen encoder",
    "contrast": "contrast followed by a probe",
    "finetune": "fine-tuning",
}


def choose(
    parts: Folds, values: dict, overrides: Sequence[str], workdir: Path, run: Callable
) -> OutOfFold | None:
    """Return the method of the final run, with its predictions out of fold; None if told to stop."""
    config, kind = parts.config, parts.task.kind
    results: dict[Method, Outcomes] = {}
    tried = methods(config, parts.task, len(parts.judge.examples), parts.whole)
    count = config.data.folds
    if parts.whole:
        predicted, models = f"{count} folds", f"{count} models, each without one fold, are trained by"
    else:
        predicted, models = f"one of {count} folds", f"a model without one of {count} folds is trained by"
    for method in tried:
        if method == "probe":
            outcomes: Outcomes | None = parts.by_probes()
        else:
            print_once(f"{models} {IN_WORDS[method]}; --config.data.folds=0 trains only the final model")
            outcomes = parts.by_runs(method, values, overrides, workdir, run)
        if outcomes is None:
            return None
        results[method] = outcomes
        scores = score(results[method])
        print_once(f"{predicted}, {IN_WORDS[method]}: {in_words(scores)}")
        if method == "probe" and parts.curve:
            print_once(f"learning curve of the probe: {parts.curve.in_words()}")
        if scores[kind.best] == 1 and config.method == "auto":
            break  # no method can be better
    if config.method == "auto" and list(results) == ["probe"]:
        reason = "the probe makes no error"
        if tried == ["probe"]:
            reason = f"fewer than {PROBE_BELOW} pairs of each class are too few to train the encoder"
        print_once(f"{reason}, so nothing else is tried; --config.method=finetune trains the encoder")
    best, why = best_of(results)
    if len(results) > 1:
        print_once(f"the final model is trained{' on all examples' * parts.whole} by {IN_WORDS[best]}{why}")
    return OutOfFold(best, results[best], parts.curve)


def best_of(results: Mapping[Method, Outcomes]) -> tuple[Method, str]:
    """Return (the method to train by, why a probe is not chosen although its score is no lower, else "").

    A probe is chosen only if it is ahead by more than a standard error, because with few examples a small lead is often
    chance: on 128 examples of SST-2 a probe had 0.742 out of fold and contrast 0.719, but on 872 others they had 0.673
    and 0.775.
    """
    trained = [method for method in results if method != "probe"]
    if not trained:
        return "probe", ""
    metric = results[trained[0]].kind.best
    best = max(trained, key=lambda method: standing(metric, score(results[method])))
    if "probe" not in results:
        return best, ""
    ahead = differences(results[best].sums, results["probe"].sums)[metric]
    if ahead.value > ahead.standard_error:
        return "probe", ""
    return best, "" if ahead.value < 0 else "; the probe is not ahead by more than a standard error"


def methods(config: FinetuneConfig, task: Finetuning, examples: int, whole: bool = True) -> list[Method]:
    """Return the methods to compare, by all folds if `whole`, else by one fold."""
    kind = task.kind
    if config.method != "auto":
        return [config.method]
    if config.head == "kept" or not kind.link:
        return ["finetune"]
    compares = HEADS[task.head].compares
    if compares and kind.contrasts and examples < PROBE_BELOW * len(kind.labels):
        return ["probe"]
    if not kind.contrasts or compares:
        return ["probe", "finetune"]
    few = whole and examples < CONTRAST_BELOW * len(kind.labels)
    return ["probe", "contrast"] if few else ["probe", "contrast", "finetune"]


def needs_one_fold(asked: FinetuneConfig, task: Finetuning) -> bool:
    """Return whether one fold must choose the method of a run that holds out a validation set.

    Only runs on single texts need it, and only if there are not too many: there contrast may be better than
    fine-tuning. `asked` is the config before it was completed from the data.
    """
    examples = task.results.train if task.results else []
    few = ONE_FOLD_FROM <= len(examples) < ONE_FOLD_BELOW * len(task.kind.labels)
    single = task.kind.contrasts and few and isinstance(examples[0].text, str)
    return single and asked.leaves_method and jax.process_count() == 1


def one_fold(values: dict, overrides: Sequence[str]) -> Folds:
    """Return all labelled examples in folds, of which only the first is predicted."""
    module, config = tasks.read(values, [*overrides, f"data.folds={FOLDS}"])
    task, data, config = module.open(config)
    return Folds(cast(Finetuning, task), data, cast(FinetuneConfig, config), predicted=[0])


def score(outcomes: Outcomes) -> dict[str, float]:
    return outcomes.sums.scores


def in_words(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
