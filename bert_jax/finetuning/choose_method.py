"""Choose the method that trains the final model: the one with the better predictions for unseen examples.

If there are few examples, all of them are predicted fold by fold, and these predictions also give scores and
calibration. If there are more, only one fold is predicted, and it only serves to choose the method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import jax

from bert_jax.finetuning.cross_validation import Folds
from bert_jax.finetuning.example_counts import (
    CONTRASTIVE_BELOW,
    DEFAULT_FOLDS,
    ONE_FOLD_BELOW,
    ONE_FOLD_FROM,
    PROBE_BELOW,
)
from bert_jax.finetuning.finetune_config import FinetuneConfig, Method
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.metrics.intervals import difference_intervals
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.out_of_fold import OutOfFoldPredictions
from bert_jax.training.best_evaluation import rank_key
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.processes import print_once
from bert_jax.training.step import StepCache
from bert_jax.training.workdir import Workdir

METHOD_NAMES: dict[Method, str] = {
    "linear_probe": "a linear probe on the frozen encoder",
    "contrastive": "contrastive training and a linear probe",
    "finetune": "fine-tuning",
}


def prepare_method(run: OpenedRun, directory: Workdir) -> OpenedRun:
    """Return the run with the method that its folds choose, or with the one that they chose before."""
    if jax.process_count() > 1:
        return run
    resumed = resume_method(run, directory)  # before the folds, in case it refuses
    run = replace(run, cache=StepCache())
    folds = folds_to_predict(run, directory)
    if folds is None:
        return resumed
    chosen = choose_method(folds, directory.path)
    return replace(with_method(run, chosen.method), out_of_fold=chosen if folds.covers_all else None)


def resume_method(run: OpenedRun, directory: Workdir) -> OpenedRun:
    """Return the run with the method with which it was started, or unchanged if it was not started.

    Refuse the directory of another run. Write nothing.
    """
    if not directory.run.exists():
        return run
    if cast(FinetuneConfig, run.config).method == "auto":
        run = with_method(run, directory.read_run()["config"].get("method", "auto"))
    directory.record_or_check(run.config, run.data, run.task)
    return run


def with_method(run: OpenedRun, method: str) -> OpenedRun:
    """Return the run with this method; contrastive training has its own task and learning rate."""
    config, given = cast(FinetuneConfig, run.config), cast(FinetuneConfig, run.given)
    if config.method == method:
        return run
    if method == "contrastive":
        return run.reopen(replace(given, method="contrastive"))
    return replace(run, config=config.with_method(cast(Method, method)))


def folds_to_predict(run: OpenedRun, directory: Workdir) -> Folds | None:
    """Return the folds to predict before the final run; None if none are needed."""
    if cast(FinetuneConfig, run.config).cross_validates:
        return Folds(run)
    if needs_one_fold(run) and not directory.run.exists():
        given = cast(FinetuneConfig, run.given)
        return Folds(run.reopen(replace(given, data=replace(given.data, folds=DEFAULT_FOLDS))), predicted=[0])
    return None


def choose_method(parts: Folds, workdir: Path) -> OutOfFoldPredictions:
    """Return the method of the final run, with its predictions out of fold."""
    config, kind = parts.config, parts.task.kind
    results: dict[Method, Outcomes] = {}
    tried = candidate_methods(config, parts.task, len(parts.evaluator.examples), parts.covers_all)
    count = config.data.folds
    if parts.covers_all:
        predicted, models = f"{count} folds", f"training {count} fold models with"
    else:
        predicted, models = f"one of {count} folds", f"training the model of one of {count} folds with"
    for method in tried:
        if method == "linear_probe":
            results[method] = parts.predict_with_probes()
        else:
            print_once(f"{models} {METHOD_NAMES[method]}; --config.data.folds=0 trains only the final model")
            results[method] = parts.predict_with_runs(method, workdir)
        scores = outcome_scores(results[method])
        print_once(f"{predicted}, {METHOD_NAMES[method]}: {describe_scores(scores)}")
        if method == "linear_probe" and parts.curve:
            print_once(f"learning curve of the probe: {parts.curve.describe()}")
        if scores[kind.best_metric] == 1 and config.method == "auto":
            break  # no method can be better
    if config.method == "auto" and list(results) == ["linear_probe"]:
        reason = "the probe predicts every example correctly"
        if tried == ["linear_probe"]:
            reason = f"fewer than {PROBE_BELOW} pairs of each class are too few to train the encoder"
        print_once(f"{reason}, so nothing else is tried; --config.method=finetune trains the encoder")
    best, why = pick_best(results)
    if len(results) > 1:
        print_once(
            f"the final model is trained{' on all examples' * parts.covers_all} by {METHOD_NAMES[best]}{why}"
        )
    return OutOfFoldPredictions(best, results[best], parts.curve)


def pick_best(results: Mapping[Method, Outcomes]) -> tuple[Method, str]:
    """Return (the method to train by, why a probe is not chosen although its score is no lower, else "").

    A probe is chosen only if it is ahead by more than a standard error, because with few examples a small lead is often
    chance: on 128 examples of SST-2 a probe had 0.742 out of fold and contrast 0.719, but on 872 others they had 0.673
    and 0.775.
    """
    trained = [method for method in results if method != "linear_probe"]
    if not trained:
        return "linear_probe", ""
    metric = results[trained[0]].kind.best_metric
    best = max(trained, key=lambda method: rank_key(metric, outcome_scores(results[method])))
    if "linear_probe" not in results:
        return best, ""
    probe_lead = difference_intervals(results[best].score_sums, results["linear_probe"].score_sums)[metric]
    if probe_lead.value > probe_lead.standard_error:
        return "linear_probe", ""
    return best, "" if probe_lead.value < 0 else "; the probe is not ahead by more than a standard error"


def candidate_methods(
    config: FinetuneConfig, task: HeadTask, examples: int, whole: bool = True
) -> list[Method]:
    """Return the methods to compare, by all folds if `whole`, else by one fold."""
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
    few = whole and examples < CONTRASTIVE_BELOW * len(kind.labels)
    return ["linear_probe", "contrastive"] if few else ["linear_probe", "contrastive", "finetune"]


def needs_one_fold(run: OpenedRun) -> bool:
    """Return whether one fold must choose the method of a run that holds out a validation set.

    Only runs on single texts need it, and only if there are not too many: there contrastive training may be better than
    fine-tuning.
    """
    task, given = cast(HeadTask, run.task), cast(FinetuneConfig, run.given)
    examples = task.finish_inputs.train if task.finish_inputs else []
    few = ONE_FOLD_FROM <= len(examples) < ONE_FOLD_BELOW * len(task.kind.labels)
    single = task.kind.supports_contrastive and few and isinstance(examples[0].text, str)
    return single and given.auto_method and jax.process_count() == 1


def describe_folds(run: OpenedRun, directory: Workdir) -> str:
    """Describe the folds that are predicted before the run, and the methods that they compare; "" if there are none."""
    config, task = cast(FinetuneConfig, run.config), cast(HeadTask, run.task)
    examples = len(task.finish_inputs.train) if task.finish_inputs else 0
    if config.cross_validates:
        return describe_compared(config.data.folds, candidate_methods(config, task, examples))
    if needs_one_fold(run) and not directory.run.exists():
        return describe_compared(1, candidate_methods(config, task, examples, whole=False))
    return ""


def describe_compared(count: int, compared: Sequence[Method]) -> str:
    """Describe the methods whose models predict `count` folds.

    >>> describe_compared(5, ["linear_probe"])
    '5, predicted by a linear probe on the frozen encoder'
    >>> describe_compared(1, ["contrastive", "finetune"])
    '1, predicted by contrastive training and a linear probe; fine-tuning'
    """
    return f"{count}, predicted by {'; '.join(METHOD_NAMES[method] for method in compared)}"


def outcome_scores(outcomes: Outcomes) -> dict[str, float]:
    return outcomes.score_sums.scores


def describe_scores(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
