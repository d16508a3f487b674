"""Which method trains the final model: the one that predicts better what it did not learn from.

Few examples are all predicted, fold by fold, and these predictions also give scores and calibration. Of more examples
one fold is predicted, and only chooses the method.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import jax

from bert_jax import tasks
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import Outcomes
from bert_jax.report.finished import OutOfFold
from bert_jax.report.intervals import differences
from bert_jax.runs.folds import Folds
from bert_jax.tasks.finetune import Finetuning
from bert_jax.tasks.finetune_config import FinetuneConfig, Method
from bert_jax.tasks.parts import FOLDS, say
from bert_jax.train.standing import standing

CONTRAST_BELOW = 256  # examples of each class: with fewer, contrast was ahead of fine-tuning at the same rate
# Examples of each class: with 256 and 512 of ten emotions contrast was three points ahead of fine-tuning, with 1,200 of
# SST-2's two classes two points behind.
ONE_FOLD_BELOW = 1_000
ONE_FOLD_FROM = 1_000  # examples: a fold of fewer would choose by chance
# Pairs of each class that are encoded apart: with 8 and 16 of MRPC fine-tuning (accuracy 0.635, 0.652) was behind the
# probe (0.696, 0.677), and folds of so few do not show it; with 256 it was ahead (0.717, 0.687).
PROBE_BELOW = 64
IN_WORDS: dict[Method, str] = {
    "probe": "a probe of the frozen encoder",
    "contrast": "contrast followed by a probe",
    "finetune": "fine-tuning",
}


def choose(
    parts: Folds, values: dict, overrides: Sequence[str], workdir: Path, run: Callable
) -> OutOfFold | None:
    """The method of the final run, and what models trained by it predict out of fold; None if told to stop."""
    config, kind = parts.config, parts.task.kind
    given: dict[Method, Outcomes] = {}
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
            say(f"{models} {IN_WORDS[method]}; --config.data.folds=0 trains the final one alone")
            outcomes = parts.by_runs(method, values, overrides, workdir, run)
        if outcomes is None:
            return None
        given[method] = outcomes
        scores = score(given[method])
        say(f"{predicted}, {IN_WORDS[method]}: {in_words(scores)}")
        if method == "probe" and parts.curve:
            say(f"learning curve of the probe: {parts.curve.in_words()}")
        if scores[kind.best] == 1 and config.method == "auto":
            break  # none is better
    if config.method == "auto" and list(given) == ["probe"]:
        reason = "the probe makes no error"
        if tried == ["probe"]:
            reason = f"fewer than {PROBE_BELOW} pairs of each class are too few to train the encoder"
        say(f"{reason}, so nothing else is tried; --config.method=finetune trains the encoder")
    best, why = best_of(given)
    if len(given) > 1:
        say(f"the final model is trained{' on everything' * parts.whole} by {IN_WORDS[best]}{why}")
    return OutOfFold(best, given[best], parts.curve)


def best_of(given: Mapping[Method, Outcomes]) -> tuple[Method, str]:
    """(what predicts best, the reason where the probe's score is no lower and yet it is not chosen). A probe is chosen
    if it is ahead by more than a standard error.

    Of a few examples the better is often so by chance: of 128 of SST-2 a probe predicted 0.742 and contrast 0.719 out
    of fold, and of 872 others 0.673 and 0.775.
    """
    trained = [method for method in given if method != "probe"]
    if not trained:
        return "probe", ""
    metric = given[trained[0]].kind.best
    best = max(trained, key=lambda method: standing(metric, score(given[method])))
    if "probe" not in given:
        return best, ""
    ahead = differences(given[best].sums, given["probe"].sums)[metric]
    if ahead.value > ahead.standard_error:
        return "probe", ""
    return best, "" if ahead.value < 0 else "; the probe is not ahead by more than a standard error"


def methods(config: FinetuneConfig, task: Finetuning, examples: int, whole: bool = True) -> list[Method]:
    """Those that are compared, by all folds or by one of them."""
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
    """Whether one fold chooses the method of a run that holds out a share: one on single texts, which contrast may
    teach more than fine-tuning. `asked` is the config as it was given, before the data completed it."""
    examples = task.results.train if task.results else []
    few = ONE_FOLD_FROM <= len(examples) < ONE_FOLD_BELOW * len(task.kind.labels)
    single = task.kind.contrasts and few and isinstance(examples[0].text, str)
    return single and asked.leaves_method and jax.process_count() == 1


def one_fold(values: dict, overrides: Sequence[str]) -> Folds:
    """All labelled examples in folds, the first of which is predicted."""
    module, config = tasks.read(values, [*overrides, f"data.folds={FOLDS}"])
    task, data, config = module.open(config)
    return Folds(cast(Finetuning, task), data, cast(FinetuneConfig, config), predicted=[0])


def score(outcomes: Outcomes) -> dict[str, float]:
    return outcomes.sums.scores


def in_words(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
