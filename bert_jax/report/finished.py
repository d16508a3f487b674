"""What a finished run leaves for people: its model's calibration and its report."""

from dataclasses import dataclass, replace

import numpy as np

from bert_jax.errors import BertJaxError
from bert_jax.inference.in_scope import vectors_of
from bert_jax.inference.model import load
from bert_jax.inference.outcomes import outcomes
from bert_jax.output import building
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions import scope as scopes
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.kind import Kind, Outcomes
from bert_jax.predictions.promise import highest_precision
from bert_jax.predictions.scope import Scope
from bert_jax.report.foreign import compared
from bert_jax.report.learning_curve import LearningCurve
from bert_jax.report.page import FILES, About, write
from bert_jax.tasks.finetune_config import Method
from bert_jax.train.task import Results
from bert_jax.train.workdir import Workdir


@dataclass(frozen=True)
class OutOfFold:
    """What is known of the training examples from models that did not learn from them."""

    method: Method  # of the models, and of the final one
    outcomes: Outcomes
    curve: LearningCurve | None = None


def calibrate(directory, results: Results, out_of_fold: OutOfFold | None = None) -> None:
    """Learn how far the model in the directory can be trusted, from the predictions for examples kept for it, or for
    all examples out of fold."""
    calibrations.save(directory, calibrations.NONE)
    if not (results.calibration or out_of_fold):
        return
    given = (
        out_of_fold.outcomes
        if out_of_fold
        else outcomes(load(directory), results.calibration, long=results.long)
    )
    try:
        calibration = given.kind.calibrate(given)
    except BertJaxError as error:
        print(f"not calibrated, so probabilities stay as they are: {error}", flush=True)
        return
    if not calibration.learnt:  # as of numbers
        return
    calibrations.save(directory, calibration)
    print(summary(given.kind, calibration), flush=True)


def learn_scope(directory, results: Results, out_of_fold: OutOfFold | None = None) -> None:
    """Learn which texts the model in the directory should not judge: those less like the training texts than texts are
    that it did not learn from, which were kept for that or are out of fold."""
    scopes.save(directory, scopes.NONE)
    model = load(directory)
    if not model.kind.scoped:
        return

    def vectors(examples) -> np.ndarray:
        texts = [examples[i].text for i in scopes.drawn(len(examples))]
        return vectors_of(model, texts, results.long)

    kept = [*results.heldout, *results.calibration]
    count, why_not = len(results.train) if out_of_fold else len(kept), ""
    if count < scopes.FEWEST:
        why_not = f"it takes {scopes.FEWEST} texts that the model did not learn from, not {count}; label more"
    elif out_of_fold and out_of_fold.outcomes.similarities is None:
        why_not = "its folds are of an earlier version, which compared no texts; train in a new --workdir"
    if why_not:
        print(f"the model cannot tell foreign texts: {why_not}", flush=True)
        return
    scope = Scope.of(vectors(results.train))
    known = out_of_fold.outcomes.similarities if out_of_fold else scope.similarity(vectors(kept))
    scopes.save(directory, Scope.of(scope.vectors, known))
    print(
        f"`predict --foreign` tells texts unlike the training texts, by {count:,} known ones",
        flush=True,
    )


def summary(kind: Kind, calibration: Calibration) -> str:
    """What a calibration is, in a line."""
    error = f"expected calibration error {calibration.error_before:.4f}"
    if calibration.keeps_probabilities:
        fit = f"probabilities stay as they are, for rescaling did not improve them; {error}"
    else:
        temperature = kind.temperature(calibration)
        fit = f"{temperature}{', ' * bool(temperature)}{error} before, {calibration.error_after:.4f} after"
    best = highest_precision(calibration.levels)
    promise = f"--precision can promise {best:g} at most" if best else "--precision can promise nothing"
    return f"calibrated on {calibration.examples:,} examples: {fit}; {promise}"


def write_run_report(
    workdir: Workdir, results: Results, command: str, out_of_fold: OutOfFold | None = None
) -> None:
    """Write the report of the model on the validation set, or where there is none of the predictions out of fold."""
    model = load(workdir.model)
    scored = "results on the validation set"
    scoped = bool(results.foreign) and model.scope.learnt
    if results.heldout or out_of_fold is None:
        given = outcomes(model, results.heldout, long=results.long, scoped=scoped)
    else:
        given = replace(out_of_fold.outcomes, calibration=model.calibration)
        scored = "results on the training set, each example predicted by a model that did not learn from it"
    parts = {"validation": results.heldout, "training": results.train, "calibration": results.calibration}
    about = About(
        f"{workdir.path}: {scored}",
        command,
        {name: examples for name, examples in parts.items() if examples},
        workdir.curves,
        out_of_fold.curve if out_of_fold else None,
        replace(compared(model, given, results.foreign, results.long), learnt=True) if scoped else None,
    )
    with building(workdir.report, FILES) as new:
        write(new, given, model, about)
    print(f"the report is {workdir.report / 'report.md'}", flush=True)
